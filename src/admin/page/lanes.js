// The table of lanes. Each row is built once, and then updated where its data has changed.

import { spark } from "/page/charts.js";
import { bar, byId, el, replace } from "/page/dom.js";
import { perSecond, scale, trace } from "/page/history.js";
import { ago, duration, number, pace, pause, percent, span } from "/page/words.js";

/** Maximum number of rows to show; the filter finds the others. */
const ROWS = 200;

const ORDERS = {
  waiting: (a, b) => b.waiting - a.waiting,
  host: () => 0,
  pace: (a, b) => b.pace - a.pace,
  oldest: (a, b) => (a.oldest_at_s ?? Infinity) - (b.oldest_at_s ?? Infinity),
  paused: (a, b) => (b.gate?.until_s ?? 0) - (a.gate?.until_s ?? 0),
};

const lanes = new Map();
const rows = new Map();

export function nameOf(lane) {
  return `${lane.rule} ${lane.host}`;
}

export function linkTo(name) {
  return `#lane=${encodeURIComponent(name)}`;
}

/** Takes over what has changed. */
export function update(turn) {
  if (turn.whole) lanes.clear();
  for (const name of turn.gone) lanes.delete(name);
  for (const lane of turn.lanes) lanes.set(nameOf(lane), lane);
}

export function all() {
  return [...lanes.values()];
}

/** Shows the rows that the filter lets through, as they are at `now`. */
export function show(now, total) {
  const wanted = byId("filter").value.trim().toLowerCase();
  const order = ORDERS[byId("sort").value];
  const found = all().filter((lane) => nameOf(lane).toLowerCase().includes(wanted));
  found.sort((a, b) => order(a, b) || a.host.localeCompare(b.host) || a.rule.localeCompare(b.rule));
  const shown = found.slice(0, ROWS);
  const body = byId("lanes").tBodies[0];
  const names = new Set(shown.map(nameOf));
  for (const [name, row] of rows) {
    if (!names.has(name)) {
      row.element.remove();
      rows.delete(name);
    }
  }
  const elements = shown.map((lane) => rowOf(lane, now));
  // A row that moves loses the focus: while somebody is in the table, it keeps its order.
  if (elements.some((element, at) => body.children[at] !== element) && !body.contains(document.activeElement)) {
    body.append(...elements);
  } else {
    body.append(...elements.filter((element) => !element.isConnected));
  }
  const none = byId("none");
  none.hidden = found.length > 0 && shown.length === total;
  none.textContent = !total ? "No request has come yet." : `${number(shown.length)} of ${number(total)} lanes`;
}

function rowOf(lane, now) {
  const name = nameOf(lane);
  if (!rows.has(name)) rows.set(name, newRow(name, lane));
  const row = rows.get(name);
  const at = row.cells;
  if (row.lane !== lane) {
    put(at.waiting, number(lane.waiting));
    put(at.pace, pace(lane.pace));
    replace(at.limits, lane.limits.map(limit));
    at.limits.classList.toggle("empty", !lane.limits.length);
    put(at.flow, lane.flow ? flow(lane.flow) : "");
    row.lane = lane;
  }
  if (row.sampled !== scale().number) {
    row.sampled = scale().number;
    replace(at.spark, sparkline(name));
    at.spark.classList.toggle("empty", !trace(name));
  }
  put(row.badge, HTTPS[lane.https] ?? "");
  row.badge.hidden = !HTTPS[lane.https];
  put(row.pause, lane.gate ? pause(lane.gate, now) : "");
  row.pause.hidden = !lane.gate;
  put(at.eta, lane.drained_at_s === null ? "" : duration(lane.drained_at_s - now));
  put(at.oldest, lane.oldest_at_s === null ? "" : duration(now - lane.oldest_at_s));
  put(at.error, lane.error ? `${lane.error.detail} (${ago(now - lane.error.at_s)})` : "");
  return row.element;
}

/** What the lane sent in each sample, and the limit that bounds it. */
function sparkline(name) {
  const known = trace(name);
  if (!known) return [];
  const { step, slots } = scale();
  const values = perSecond(known.sent);
  const said = `sent per second over the last ${span(step * slots)}: now ${pace(values.at(-1))}, at most ${pace(Math.max(...values))}${known.limit ? `, limit ${pace(known.limit)}` : ""}`;
  return [spark(values, known.limit, slots, said)];
}

/** Writes only what is new: screen readers and selections are not to be disturbed each second. */
function put(cell, text) {
  if (!cell || cell.textContent === text) return;
  cell.textContent = text;
  if (cell.dataset.label) cell.classList.toggle("empty", !text);
}

function newRow(name, lane) {
  const cell = (label, kind) => el("td", { role: "cell", "data-label": label, class: `${kind} empty` });
  const badge = el("small", { class: "https", hidden: true });
  const paused = el("span", { class: "pause", hidden: true });
  const cells = {
    name: el("th", { role: "rowheader", scope: "row" }, el("a", { href: linkTo(name) }, lane.host), lane.rule === lane.host ? null : el("small", {}, lane.rule), badge, paused),
    waiting: cell("Waiting", "number"),
    pace: cell("Pace", "number"),
    spark: cell("Last 15 min", "wide"),
    limits: cell("Limits", "wide"),
    eta: cell("Drained in", "number"),
    oldest: cell("Oldest", "number"),
    flow: cell("Waits most", "wide"),
    error: cell("Last error", "wide bad"),
  };
  return { cells, badge, pause: paused, element: el("tr", { role: "row" }, ...Object.values(cells)) };
}

/** What andante sees of HTTPS to a host with limits. */
const HTTPS = {
  intercept: "HTTPS: intercepted",
  turns: "HTTPS: paced by turns (refusals, paths, costs are not seen)",
  tunnel: "HTTPS: tunnelled: each tunnel takes one slot, requests inside are not paced",
};

export function limit({ limit, used, of, learned }) {
  const share = of ? used / of : 0;
  const said = `${limit}${learned ? ", learned" : ""}: ${number(used)} of ${number(of)} used`;
  return el("div", { class: "limit", title: said }, bar(share, said), el("span", { "aria-hidden": "true" }, `${percent(share)} of ${limit}${learned ? " (learned)" : ""}`));
}

export function flow({ client, flow, waiting, urgency }) {
  return `${client}${flow ? ` flow ${flow}` : ""}: ${number(waiting)}${urgency === 3 ? "" : `, urgency ${urgency}`}`;
}
