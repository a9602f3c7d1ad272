// One lane, opened.

import { bars, line } from "/page/charts.js";
import { byId, el, facts, replace } from "/page/dom.js";
import { flow, limit } from "/page/lanes.js";
import { events } from "/page/news.js";
import { button } from "/page/steer.js";
import { ago, duration, number, pace, pause } from "/page/words.js";

/** As the stream sends them: a sample every 5 s, for a quarter of an hour. */
const STEP = 5;
const SAMPLES = 180;

let opened = null;
/** Who waits in it. */
let flows = [];

/** The lane that is opened is another one now; nothing is known of it yet. */
export function open(name) {
  opened = name;
  flows = [];
  const section = byId("lane");
  section.hidden = !name;
  byId("overview").hidden = Boolean(name);
  if (name) replace(section, head(name), el("p", { class: "soft" }, "…"));
}

export function show({ name, detail, pace: sent, history, news }, now) {
  if (name !== opened) return;
  const section = byId("lane");
  if (!detail) return replace(section, head(name), el("p", {}, "There is no such lane: no request has asked for it, or it was forgotten."));
  const lane = detail.lane;
  flows = lane.flows;
  const parts = [
    el("dl", { class: "facts", "aria-label": "This lane now" }, facts(numbers(lane, sent))),
    el("div", { class: "charts" }, line("Waiting", history, STEP, SAMPLES), bars("How long requests waited", waits(detail.waits), "nothing has been sent"), bars("Answers of this rule by code", codes(detail.answers), "no answer yet")),
    table("Limits", ["Limit", "Used", "Where it comes from"], limits(lane)),
    table("What the API says is left", ["Name", "Left", "Resets in"], lane.budgets.map(budget)),
    table("Who waits", ["Client and flow"], lane.flows.map((one) => [flow(one)])),
    el("h3", {}, "Lately in this lane"),
    el("ol", { class: "rows" }, events(news, now, false)),
  ];
  // The link back is kept, and the focus with it.
  const kept = section.firstElementChild;
  section.replaceChildren(kept, ...pauseOf(lane, now), ...parts.filter(Boolean));
}

function head(name) {
  const at = name.lastIndexOf(" ");
  const lane = { rule: name.slice(0, at), host: name.slice(at + 1), flows: () => flows };
  const changes = ["pause", "resume", "limit", "weights", "first", "drop", "forget"].map((action) => button(action, lane));
  return el("div", {}, el("h2", { id: "lane-title" }, lane.host), el("span", { class: "soft" }, `rule ${lane.rule}`), ...changes, el("a", { href: "#" }, "all lanes"));
}

function pauseOf(lane, now) {
  if (!lane.gate) return [];
  const until_s = lane.gate.opens_in_s === null ? null : now + lane.gate.opens_in_s;
  return [el("p", {}, el("span", { class: "pause" }, pause({ ...lane.gate, until_s }, now)))];
}

function numbers(lane, sent) {
  const most = lane.in_flight_limit ?? lane.at_once?.most;
  return [
    ["waiting", number(lane.waiting)],
    ["sent", pace(sent)],
    ["under way", most ? `${number(lane.in_flight)} of ${number(most)}` : number(lane.in_flight)],
    ["next leaves in", lane.waiting ? duration(lane.next_slot_s) : null],
    ["drained in", lane.waiting ? duration(lane.drain_eta_s) : null],
    ["oldest", lane.oldest_waiting_s === null ? null : duration(lane.oldest_waiting_s)],
    ["sent so far", number(lane.sent_total)],
    ["answered 429", number(lane.answered_429_total), lane.answered_429_total ? "bad" : null],
    ["refused by andante", number(lane.refused_total), lane.refused_total ? "bad" : null],
    ["clients that left", number(lane.left_total), lane.left_total ? "bad" : null],
    ["failed lately", lane.failures ? `${lane.failures.failed} of ${lane.failures.of}` : null],
    ["last error", lane.last_error ? `${lane.last_error.detail} (${ago(lane.last_error.last_s)})` : null, "bad"],
  ];
}

function limits(lane) {
  const row = ({ limit: written, used, room, source, evidence, margin_ms, renewed_in_s, ends_in_s }) => [
    limit({ limit: written, used, of: used + room, learned: source === "learned" }),
    `${number(used)} of ${number(used + room)}${renewed_in_s === null || renewed_in_s === undefined ? "" : `, renewed in ${duration(renewed_in_s)}`}`,
    `${source === "learned" ? `learned: ${evidence ?? ""}` : (ends_in_s ?? null) === null ? "configured" : `set by an operator, for ${duration(ends_in_s)} more`}${margin_ms >= 1 ? ` (margin ${number(Math.round(margin_ms))} ms)` : ""}`,
  ];
  const own = (one) => [one.requests, [one.per_second ? pace(one.per_second) : null, one.at_once ? `${one.at_once} at once` : null].filter(Boolean).join(", "), `learned: ${one.evidence}`];
  const atOnce = lane.at_once ? [[`${lane.at_once.most} at once`, number(lane.in_flight), `learned: ${lane.at_once.evidence}`]] : [];
  const added = (lane.rules ?? []).flatMap((rule) =>
    rule.limits.map((one) => [limit({ limit: one.limit, used: one.used, of: one.used + one.room, learned: false }), `${number(rule.waiting)} waiting`, (one.ends_in_s ?? null) === null ? `configured by rule ${rule.rule} for some requests` : `set by an operator for rule ${rule.rule}, for ${duration(one.ends_in_s)} more`]),
  );
  return [...lane.limits.map(row), ...atOnce, ...added, ...(lane.own_limits ?? []).map(own)];
}

function budget({ name, left, limit: most, reset_s, requests }) {
  const unit = requests ? "" : " (not requests)";
  const of = most === null ? "" : ` of ${number(most)}`;
  return [`${name ?? "requests"}${unit}`, left === null ? "–" : `${number(left)}${of}`, duration(reset_s)];
}

function waits(buckets) {
  const last = buckets.findLastIndex(({ count }) => count);
  let from = "0";
  const pairs = buckets.map(({ at_most_s, count }) => {
    const bound = at_most_s !== null && at_most_s < 1 ? `${number(Math.round(at_most_s * 1000))} ms` : duration(at_most_s);
    const name = at_most_s === null ? `more than ${from}` : `up to ${bound}`;
    from = bound;
    return [name, count];
  });
  return pairs.slice(0, last + 1);
}

function codes(answers) {
  return Object.entries(answers).sort(([a], [b]) => a.localeCompare(b));
}

function table(title, columns, rows) {
  if (!rows.length) return null;
  const id = `table-${title.toLowerCase().replaceAll(/[^a-z]+/g, "-")}`;
  return el(
    "section",
    { "aria-labelledby": id },
    el("h3", { id }, title),
    el("table", { "aria-labelledby": id }, el("thead", {}, el("tr", {}, columns.map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell) => el("td", {}, cell)))))),
  );
}
