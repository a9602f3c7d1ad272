// Pictures of numbers, each with the same in words.

import { bar, el, svg } from "/page/dom.js";
import { duration, number, span } from "/page/words.js";

/** Height of a picture in its own units; lines keep this share of it free at the top. */
const HEIGHT = 100;
const FREE = 0.06;

/**
 * Lines over time. Each of `lines` has a `name`, a `kind` for its style, and `values`, one every `step` seconds, the last one
 * now; `null` is a gap. `text` says a value.
 */
export function chart(title, lines, { step, slots }, text = number) {
  const known = lines.flatMap(({ values }) => values).filter((value) => value !== null && value !== undefined);
  const most = known.length ? Math.max(...known) : null;
  const length = span(step * slots);
  const now = lines.filter(({ values }) => values.length).map(({ name, values }) => `${name} ${say(text, values.at(-1))}`);
  const said = `${title} over the last ${length}: now ${now.join(", ") || "nothing"}; at most ${say(text, most)}`;
  const shapes = lines.flatMap(({ kind, values }) => {
    const from = slots - values.length;
    return drawn(kind, values.map((value, at) => [from + at, value]), most);
  });
  return framed(title, said, picture(slots - 1, said, shapes), say(text, most), [`${length} ago`, "now"], legend(lines, text));
}

/** Lines through points of a time in seconds and a value, such as a queue that drains; from 0 to `end`. */
export function curves(title, lines, end, text = number) {
  const most = Math.max(1, ...lines.flatMap(({ points }) => points.map(([, value]) => value)));
  const said = `${title}: ${lines.map(({ name, points }) => `${name} from ${say(text, points[0]?.[1])} to ${say(text, points.at(-1)?.[1])}`).join(", ")} within ${duration(end)}`;
  const shapes = lines.flatMap(({ kind, points }) => drawn(kind, points.map(([at, value]) => [end ? (1000 * at) / end : 0, value]), most));
  return framed(title, said, picture(1000, said, shapes), say(text, most), ["now", duration(end)], lines.length > 1 ? key(lines) : null);
}

/** A small line for a row: counts a second, and their limit, if there is one. */
export function spark(values, limit, slots, said) {
  const most = Math.max(limit ?? 0, ...values);
  const from = slots - values.length;
  const shapes = drawn("main", values.map((value, at) => [from + at, value]), most);
  if (limit) shapes.push(...drawn("limit", [[0, limit], [slots - 1, limit]], most));
  const made = picture(slots - 1, said, shapes);
  made.classList.add("spark");
  return made;
}

/** When each of `rows` paused and was refused something. Marks are `[place, count]`, the place counted from the oldest sample. */
export function timeline(title, rows, { step, slots }, nothing) {
  const length = span(step * slots);
  const body = rows.map(({ name, paused, refused }) => {
    const count = refused.reduce((sum, [, count]) => sum + count, 0);
    const said = `${title.toLowerCase()} of the last ${length}: paused for about ${duration(paused.length * step)}, ${number(count)} refused`;
    const shapes = [
      ...paused.map((at) => svg("rect", { class: "paused", x: at, y: 0, width: 1, height: HEIGHT })),
      ...refused.map(([at]) => svg("rect", { class: "refused", x: at, y: HEIGHT / 3, width: 1, height: HEIGHT / 1.5 })),
    ];
    return el("li", {}, el("span", {}, name), picture(slots, said, shapes), el("span", { class: "number soft" }, facts(paused.length * step, count)));
  });
  const content = rows.length
    ? [el("ul", { class: "timeline" }, body, el("li", { "aria-hidden": "true" }, axis([`${length} ago`, "now"]))), el("p", { class: "legend" }, mark("paused"), "paused", mark("refused"), "requests refused")]
    : [el("p", { class: "soft" }, nothing)];
  return el("div", { class: "chart wide" }, el("h3", {}, title), ...content);
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

function facts(paused, refused) {
  return [paused ? `paused ${duration(paused)}` : null, refused ? `${number(refused)} refused` : null].filter(Boolean).join(", ");
}

function say(text, value) {
  return value === null || value === undefined ? "–" : text(value);
}

/** The shapes of one line; a gap where there is no value. */
function drawn(kind, points, most) {
  const y = (value) => (HEIGHT - (HEIGHT * (1 - FREE) * value) / (most || 1)).toFixed(1);
  const runs = [];
  points.forEach(([at, value], index) => {
    if (value === null || value === undefined) return;
    const before = points[index - 1]?.[1];
    if (before === null || before === undefined) runs.push([]);
    runs.at(-1).push([at.toFixed(1), y(value)]);
  });
  return runs.flatMap((run) => {
    // A single value is a dot, as wide as a sample.
    const path = run.length === 1 ? `M${run[0].join(",")} h0.8` : `M${run.map((point) => point.join(",")).join(" L")}`;
    const area = svg("path", { class: "area", d: `M${run[0][0]},${HEIGHT} L${run.map((point) => point.join(",")).join(" L")} L${run.at(-1)[0]},${HEIGHT} Z` });
    return [...(kind === "main" ? [area] : []), svg("path", { class: `edge ${kind}`, d: path })];
  });
}

function picture(width, said, shapes) {
  return svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": said }, ...shapes);
}

function framed(title, said, made, most, ends, below) {
  return el("div", { class: "chart" }, el("div", { class: "head" }, el("h3", {}, title), el("span", { class: "soft", "aria-hidden": "true" }, `at most ${most}`)), made, axis(ends), below);
}

function axis(ends) {
  return el("p", { class: "axis", "aria-hidden": "true" }, ends.map((end) => el("span", {}, end)));
}

function legend(lines, text) {
  return el("p", { class: "legend" }, lines.flatMap(({ name, kind, values }) => [mark(kind), `${name} ${say(text, values.at(-1))}`]));
}

function key(lines) {
  return el("p", { class: "legend" }, lines.flatMap(({ name, kind }) => [mark(kind), name]));
}

function mark(kind) {
  return svg("svg", { class: "mark", viewBox: "0 0 20 10", "aria-hidden": "true" }, kind === "paused" || kind === "refused" ? svg("rect", { class: kind, x: 4, y: 0, width: 12, height: 10 }) : svg("path", { class: `edge ${kind}`, d: "M0,5 H20" }));
}
