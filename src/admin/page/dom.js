// Makes elements. Whatever comes from outside gets into the page as text here, and in no other way.

const SVG = "http://www.w3.org/2000/svg";

/** An element with these attributes, and children that are elements or text. `null` children are left out. */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same of SVG. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined).map(node));
  return element;
}

function node(child) {
  return child instanceof Node ? child : document.createTextNode(String(child));
}

/** Puts `children` in place of what `element` has. */
export function replace(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined).map(node));
}

export function byId(id) {
  return document.getElementById(id);
}

/** A bar that is filled to `share`, from 0 to 1; `label` says the same in words. */
export function bar(share, label) {
  const shown = Math.max(0, Math.min(1, share || 0));
  const filled = el("span");
  filled.style.width = `${(shown * 100).toFixed(1)}%`;
  return el("span", { class: "share", role: "img", "aria-label": label }, filled);
}

/** Pairs of a name and a value, as a description list has them. */
export function facts(pairs) {
  return pairs
    .filter(([, value]) => value !== null && value !== undefined)
    .map(([name, value, kind]) => el("div", {}, el("dt", {}, name), el("dd", { class: kind ?? null }, value)));
}
