// One lane, opened.

import { bars, chart, timeline } from "/page/charts.js";
import { byId, el, facts, replace } from "/page/dom.js";
import { perSecond, scale } from "/page/history.js";
import { flow, limit } from "/page/lanes.js";
import { events } from "/page/news.js";
import { suggest } from "/page/plan.js";
import { button } from "/page/steer.js";
import { ago, duration, number, pace, pause } from "/page/words.js";

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
  if (name) replace(section, head(name), el("div", {}, el("p", { class: "soft" }, "…")));
}

export function show({ name, detail, pace: sent, history, news }, now) {
  if (name !== opened) return;
  // The head stays as it is: a button that is replaced while it is pressed loses the click, and the focus.
  const body = byId("lane").lastElementChild;
  if (!detail) return replace(body, el("p", {}, "There is no such lane: no request has asked for it, or it was forgotten."));
  const lane = detail.lane;
  flows = lane.flows;
  suggest(lane.limits.filter(({ source }) => source === "config").map((one) => one.limit).join(", "));
  const parts = [
    el("dl", { class: "facts", "aria-label": "This lane now" }, facts(numbers(lane, sent))),
    el("div", { class: "charts" }, ...pictures(history), bars("Answers of this rule by code", codes(detail.answers), "no answer yet")),
    timeline("Pauses and refusals", pauses(history), scale(), "no pause, and nothing refused"),
    table("The window as the API sees it", ["Window", "Used", "Room", "Renews"], [...lane.limits.map(window), ...lane.budgets.map(budget)], "A request counts for as long as the API may still count it."),
    table("Limits", ["Limit", "In use", "Where it comes from", ...(shared(lane) ? ["This andante's share"] : [])], limits(lane)),
    table("Who waits", ["Client and flow"], lane.flows.map((one) => [flow(one)])),
    el("h3", {}, "Lately in this lane"),
    el("ol", { class: "rows" }, news.length ? events(news, now, false) : el("li", { class: "soft" }, "nothing worth telling has happened")),
  ];
  replace(body, ...pauseOf(lane, now), ...parts);
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
    ["in flight", most ? `${number(lane.in_flight)} of ${number(most)}` : number(lane.in_flight)],
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

/** The charts of the last quarter of an hour. */
function pictures(history) {
  const sent = [{ name: "sent", kind: "main", values: perSecond(history.sent) }];
  if (history.limit.some((limit) => limit !== null)) sent.push({ name: "limit", kind: "limit", values: history.limit });
  const waits = [
    { name: "median", kind: "main", values: history.p50 },
    { name: "p95", kind: "second", values: history.p95 },
    { name: "p99", kind: "third", values: history.p99 },
  ];
  return [
    chart("Sent per second", sent, scale(), pace),
    chart("Waiting", [{ name: "waiting", kind: "main", values: history.waiting }], scale()),
    chart("How long requests waited", waits, scale(), duration),
  ];
}

/** When it paused, and when who refused requests: a row each, if there is anything to show. */
function pauses(history) {
  const from = scale().slots - history.sent.length;
  const places = (values) => values.flatMap((value, at) => (value ? [[from + at, value]] : []));
  const rows = [
    { name: "paused", paused: places(history.paused).map(([at]) => at), refused: [] },
    { name: "refused by the API", paused: [], refused: places(history.refused_by_api) },
    { name: "refused by andante", paused: [], refused: places(history.refused) },
  ];
  return rows.filter(({ paused, refused }) => paused.length || refused.length);
}

function window({ limit: written, used, room, renewed_in_s, next_free_in_s, all_free_in_s }) {
  const some = (value) => value !== null && value !== undefined;
  const rolling = [some(next_free_in_s) ? `first in ${duration(next_free_in_s)}` : null, some(all_free_in_s) ? `all in ${duration(all_free_in_s)}` : null].filter(Boolean).join(", ");
  const renews = some(renewed_in_s) ? `all in ${duration(renewed_in_s)}` : used ? rolling || "after the answers" : "is empty";
  return [written, `${number(used)} of ${number(used + room)}`, number(room), renews];
}

/** What the API reports. */
function budget({ name, left, limit: most, reset_s, requests }) {
  const unit = requests ? "" : ", not requests";
  const used = left === null || most === null ? "–" : `${number(Math.max(0, most - left))} of ${number(most)}`;
  return [`${name ?? "requests"} (reported by the API${unit})`, used, left === null ? "–" : number(left), reset_s === null ? "–" : `all in ${duration(reset_s)}`];
}

function shared(lane) {
  return lane.limits.some(({ share }) => share);
}

function share(of) {
  if (!of) return "–";
  const opens = of.opens_in_s ? `, more from the store in ${duration(of.opens_in_s)}` : "";
  return `${number(of.held + of.own)} here, ${number(of.free)} of them free; ${of.target.toFixed(1)} due${of.wanted ? "; the fleet wants more than there is" : ""}${opens}`;
}

function limits(lane) {
  const last = shared(lane) ? (of) => [share(of)] : () => [];
  const row = ({ limit: written, used, room, source, evidence, margin_ms, ends_in_s, share }) => [
    written,
    limit({ limit: written, used, of: used + room, learned: source === "learned" }),
    `${source === "learned" ? `learned: ${evidence ?? ""}` : (ends_in_s ?? null) === null ? "configured" : `set by an operator, for ${duration(ends_in_s)} more`}${margin_ms >= 1 ? ` (margin ${number(Math.round(margin_ms))} ms)` : ""}`,
    ...last(share),
  ];
  const own = (one) => [one.requests, [one.per_second ? pace(one.per_second) : null, one.at_once ? `${one.at_once} at once` : null].filter(Boolean).join(", "), `learned: ${one.evidence}`, ...last()];
  const atOnce = lane.at_once ? [[`${lane.at_once.most} at once`, number(lane.in_flight), `learned: ${lane.at_once.evidence}`, ...last()]] : [];
  const added = (lane.rules ?? []).flatMap((rule) =>
    rule.limits.map((one) => [
      one.limit,
      el("div", {}, limit({ limit: one.limit, used: one.used, of: one.used + one.room, learned: false }), `${number(rule.waiting)} waiting`),
      (one.ends_in_s ?? null) === null ? `configured by rule ${rule.rule} for some requests` : `set by an operator for rule ${rule.rule}, for ${duration(one.ends_in_s)} more`,
      ...last(one.share),
    ]),
  );
  return [...lane.limits.map(row), ...atOnce, ...added, ...(lane.own_limits ?? []).map(own)];
}

function codes(answers) {
  return Object.entries(answers).sort(([a], [b]) => a.localeCompare(b));
}

function table(title, columns, rows, note) {
  if (!rows.length) return null;
  const id = `table-${title.toLowerCase().replaceAll(/[^a-z]+/g, "-")}`;
  return el(
    "section",
    { "aria-labelledby": id },
    el("h3", { id }, title),
    note ? el("p", { class: "soft" }, note) : null,
    el("table", { "aria-labelledby": id }, el("thead", {}, el("tr", {}, columns.map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell) => el("td", {}, cell)))))),
  );
}
