// Is anything wrong? The worst problem in one line, and all of them below it.

import { byId, el, replace } from "/page/dom.js";
import { count, scale, traces } from "/page/history.js";
import { all } from "/page/lanes.js";
import { ago, duration, number, pause, span as length } from "/page/words.js";

const [BAD, WARN, NOTE] = [0, 1, 2];
const LEVELS = ["bad", "warn"];

/** How andante stands with a store that it cannot count on. */
const STANDINGS = {
  "cut-off": [BAD, "The store is lost: nothing leaves"],
  floor: [BAD, "The store is lost: only this andante's floor leaves"],
  open: [BAD, "The store is lost: the limits may be exceeded"],
  silent: [WARN, "The store does not answer"],
  joining: [WARN, "The store has not answered yet: nothing leaves"],
  learning: [WARN, "The store is new, or has lost its data"],
};

/** Shows how it is `now`. */
export function show(status, now) {
  const found = problems(status, now).sort((a, b) => a.level - b.level);
  const worst = found.find(({ level }) => level !== NOTE);
  const verdict = byId("verdict");
  verdict.className = worst ? LEVELS[worst.level] : "good";
  put(byId("verdict-words"), worst?.words ?? "Nothing is wrong");
  put(byId("verdict-detail"), worst ? [worst.detail, worst.hint].filter(Boolean).join(". ") : fine(status));
  const list = byId("problems");
  list.hidden = found.length < (worst ? 2 : 1);
  put(list.querySelector("summary"), worst ? `What went wrong (${found.length})` : `Worth a look (${found.length})`);
  replace(
    list.querySelector("ul"),
    found.map(({ level, words, detail, hint }) => el("li", { class: LEVELS[level] ?? null }, el("strong", {}, words), detail ? `: ${detail}` : null, hint ? `. ${hint}` : null)),
  );
}

/** The stream has broken off: nothing is known of the present. */
export function lost(words) {
  byId("verdict").className = "warn";
  put(byId("verdict-words"), "This page has lost andante");
  put(byId("verdict-detail"), words);
}

/** Writes only what is new: screen readers are told of it. */
function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function span() {
  const { step, slots } = scale();
  return `in the last ${length(step * slots)}`;
}

function fine(status) {
  const lanes = status.lanes_total;
  return lanes ? `Nothing was refused, and nothing failed, ${span()}` : "No request has come yet";
}

function problems(status, now) {
  return [...operation(status), ...paused(now), ...incidents(status), ...losses(status)];
}

/** Of andante itself. */
function operation({ config, fleet, state, access_log: log, draining, unmatched_rules: unmatched }) {
  const standing = STANDINGS[fleet?.standing] ?? (fleet?.problem ? [WARN, "The andantes of the fleet disagree"] : null);
  return [
    ...(standing ? [{ level: standing[0], words: standing[1], ...ofStore(fleet) }] : []),
    ...(state?.problem ? [{ level: BAD, words: "The state file cannot be written", detail: state.problem, hint: "A restart now loses the counts of sent requests, and limits may be exceeded" }] : []),
    ...config.problems.map((problem) => ({ level: BAD, words: "Reload failed", detail: problem, hint: "The previous configuration stays in force" })),
    ...(log?.problem ? [{ level: WARN, words: "The access log cannot be written", detail: `${log.problem}; ${number(log.lost_total)} lines are lost` }] : []),
    ...(draining ? [{ level: WARN, words: "andante is draining", detail: "it accepts no new connections, and exits when the queue is empty" }] : []),
    ...unmatched.map((rule) => ({ level: NOTE, words: `No request has matched the rule ${rule} so far`, detail: null })),
  ];
}

/** What the store is waited for, and what helps. */
function ofStore({ standing, problem, hint, learns_for_s: learns }) {
  if (standing === "learning") {
    return { detail: `tokens that no andante reports are given out in ${duration(learns ?? 0)} and a window`, hint };
  }
  const others = standing === "shared" ? "Write the same limits, lease, fleet-size and floor for all andantes" : "andante keeps trying; `store-down` decides which requests leave meanwhile";
  return { detail: problem, hint: hint ?? others };
}

function paused(now) {
  const severe = ({ gate }) => gate.reason === "banned" || gate.reason === "breaker";
  return all()
    .filter((lane) => lane.gate)
    .sort((a, b) => severe(b) - severe(a) || b.waiting - a.waiting)
    .map((lane) => ({ level: severe(lane) ? BAD : WARN, words: `${lane.host} is paused`, detail: `${pause(lane.gate, now).replace("paused, ", "")}; ${number(lane.waiting)} waiting` }));
}

function incidents({ incidents }) {
  const { step, slots } = scale();
  return incidents.map(({ detail, hint, blame, total, last_s }) => ({
    level: last_s < step * slots ? BAD : NOTE,
    words: detail,
    detail: `${blame}, ${total === 1 ? "once" : `${number(total)} times, last`} ${ago(last_s)}`,
    hint,
  }));
}

/** Requests without a good answer. */
function losses() {
  const of = (name) => count(name) && `${number(count(name))} ${span()}`;
  const refusing = traces().filter(([, trace]) => trace.refused.length).map(([name]) => name.slice(name.lastIndexOf(" ") + 1));
  return [
    { level: BAD, words: "Requests failed", detail: of("failed"), hint: "The lanes' last errors say why" },
    { level: BAD, words: "andante refused requests", detail: of("refused"), hint: "Their wait would exceed max-wait, or the queue was full (max-waiting)" },
    { level: BAD, words: "Clients left before their answers", detail: of("left"), hint: "Raise the clients' time-outs, or send fewer requests at once" },
    { level: WARN, words: "An API refused requests", detail: of("refused_by_api"), hint: refusing.length ? `They were to ${[...new Set(refusing)].slice(0, 3).join(", ")}` : null },
  ].filter(({ detail }) => detail);
}
