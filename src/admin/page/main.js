// Follows the stream of andante's state, and shows it.

import { byId, el, facts, replace } from "/page/dom.js";
import * as fleet from "/page/fleet.js";
import * as history from "/page/history.js";
import * as lane from "/page/lane.js";
import * as lanes from "/page/lanes.js";
import { events } from "/page/news.js";
import * as overview from "/page/overview.js";
import { suggest } from "/page/plan.js";
import * as problems from "/page/problems.js";
import { button } from "/page/steer.js";
import { duration, number, pace } from "/page/words.js";

/** How long to wait after andante has refused the stream. */
const AGAIN = 5000;
/** How many events are shown. */
const NEWS = 100;

let stream = null;
let status = null;
let received = 0;
let news = [];
let again = null;

/** The present, in seconds since andante's start. */
function now() {
  return status ? status.uptime_s + (performance.now() - received) / 1000 : 0;
}

function opened() {
  const hash = location.hash;
  try {
    return hash.startsWith("#lane=") ? decodeURIComponent(hash.slice(6)) : null;
  } catch {
    return null;
  }
}

/** Follows the stream from here on; of the lane that is opened, too. */
function follow() {
  stream?.close();
  clearTimeout(again);
  const name = opened();
  stream = new EventSource(name ? `/events?lane=${encodeURIComponent(name)}` : "/events");
  stream.addEventListener("turn", (event) => turn(JSON.parse(event.data)));
  stream.addEventListener("history", (event) => {
    history.take(JSON.parse(event.data));
    overview.draw();
    show();
  });
  stream.addEventListener("lane", (event) => lane.show(JSON.parse(event.data), now()));
  stream.addEventListener("error", () => {
    said("connection lost, trying again …", true);
    problems.lost("What is shown is how it was before: the connection is lost, and tried again");
    if (stream.readyState === EventSource.CLOSED) again = setTimeout(follow, AGAIN);
  });
}

function turn(turn) {
  status = turn.status;
  received = performance.now();
  lanes.update(turn);
  if (turn.whole) news = [];
  const known = news.at(-1)?.number ?? 0;
  news = [...news, ...turn.news.filter((event) => event.number > known)].slice(-NEWS);
  show();
}

function show() {
  if (!status) return;
  const at = now();
  const all = lanes.all();
  const sum = (of) => all.reduce((sum, lane) => sum + of(lane), 0);
  const waiting = sum((lane) => lane.waiting);
  const paused = all.filter((lane) => lane.gate).length;
  const drained = Math.max(...all.map((lane) => lane.drained_at_s ?? 0));
  const version = `${status.instance ? `${status.instance}, ` : ""}andante ${status.version}, up ${duration(status.uptime_s)}`;
  said(status.draining ? `${version}, draining: takes nothing new` : version, false);
  const name = status.instance ? `andante on ${status.instance}` : "andante";
  document.title = waiting ? `${number(waiting)} waiting – ${name}` : name;
  replace(
    byId("summary"),
    facts([
      ["waiting", number(waiting)],
      ["pace", pace(sum((lane) => lane.pace))],
      ["drained in", waiting && drained ? duration(drained - at) : null],
      ["in flight", number(sum((lane) => lane.in_flight))],
      ["answered", number(status.requests.answered)],
      ["paused", paused ? number(paused) : null],
      ["sent again", status.retries_total ? number(status.retries_total) : null],
      ["refused", status.requests.refused ? number(status.requests.refused) : null, "bad"],
      ["failed", status.requests.failed ? number(status.requests.failed) : null, "bad"],
      ["clients left", status.requests.left ? number(status.requests.left) : null, "bad"],
    ]),
  );
  lanes.show(at, status.lanes_total);
  suggest(all.find((lane) => lane.limits.some(({ learned }) => !learned))?.limits.filter(({ learned }) => !learned).map(({ limit }) => limit).join(", "));
  problems.show(status, at);
  fleet.show(status.fleet);
  replace(byId("news"), news.length ? events(news, at, true) : el("li", { class: "soft" }, "nothing worth telling has happened"));
}

function said(text, lost) {
  const state = byId("state");
  state.classList.toggle("lost", lost);
  // The uptime changes each second, so screen readers announce this text only while the connection is lost or andante
  // is draining.
  state.setAttribute("aria-live", lost || status?.draining ? "polite" : "off");
  if (state.textContent !== text) state.textContent = text;
}

addEventListener("hashchange", () => {
  lane.open(opened());
  follow();
  byId(opened() ? "lane" : "overview").querySelector("h2").scrollIntoView({ block: "nearest" });
});
// A browser has few connections to one address, so a hidden page closes its stream.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    stream?.close();
    clearTimeout(again);
  } else follow();
});
byId("filter").addEventListener("input", show);
byId("sort").addEventListener("change", show);
byId("all").append(button("pause"), " ", button("resume"));
byId("drain").append(button("drain"));
lane.open(opened());
follow();
