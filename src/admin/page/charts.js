// Pictures of numbers, each with the same in words.

import { bar, el, svg } from "/page/dom.js";
import { duration, number } from "/page/words.js";

/** A line over time: `values`, one every `step` seconds, the last one now. */
export function line(title, values, step, slots) {
  const most = Math.max(1, ...values);
  const last = values.at(-1) ?? 0;
  const from = slots - values.length;
  const points = values.map((value, at) => `${from + at},${(100 - (96 * value) / most).toFixed(1)}`);
  const span = duration(step * slots);
  const said = `${title} over the last ${span}: now ${number(last)}, at most ${number(values.length ? most : 0)}`;
  const shapes = points.length
    ? [
        svg("path", { class: "area", d: `M${from},100 L${points.join(" L")} L${slots - 1},100 Z` }),
        svg("path", { class: "edge", d: `M${points.join(" L")}` }),
      ]
    : [];
  const picture = svg("svg", { viewBox: `0 0 ${slots - 1} 100`, preserveAspectRatio: "none", role: "img", "aria-label": said }, ...shapes);
  return el("div", { class: "chart" }, el("h3", {}, title), picture, el("p", { class: "soft" }, `last ${span}, at most ${number(values.length ? most : 0)}`));
}

/** A bar for each of `[name, count]`. */
export function bars(title, pairs, nothing) {
  const total = pairs.reduce((sum, [, count]) => sum + count, 0);
  const most = Math.max(1, ...pairs.map(([, count]) => count));
  const rows = pairs.map(([name, count]) =>
    el("li", {}, el("span", { class: "number" }, name), bar(count / most, `${number(count)} of ${number(total)}`), el("span", { class: "number" }, number(count))),
  );
  const body = rows.length ? el("ul", { class: "bars" }, rows) : el("p", { class: "soft" }, nothing);
  return el("div", { class: "chart" }, el("h3", {}, title), body);
}
