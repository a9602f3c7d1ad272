// All lanes together over the last quarter of an hour.

import { chart, timeline } from "/page/charts.js";
import { byId, el, replace } from "/page/dom.js";
import * as history from "/page/history.js";
import { linkTo } from "/page/lanes.js";
import { pace } from "/page/words.js";

/** More lanes than this are more than a timeline is read for: the worst are shown. */
const LANES = 8;

/** Draws the charts; to be called once a sample. */
export function draw() {
  const sent = history.perSecond(history.all("sent"));
  const traces = history.traces();
  const active = traces.filter(([, trace]) => trace.sent.some(Boolean));
  // Limits of several hosts do not add up to one that means something.
  const limit = active.length === 1 ? active[0][1].limit : null;
  const lines = [{ name: "sent", kind: "main", values: sent }];
  if (limit) lines.push({ name: "limit", kind: "limit", values: sent.map(() => limit) });
  replace(
    byId("charts"),
    chart("Sent per second, all lanes", lines, history.scale(), pace),
    chart("Waiting, all lanes", [{ name: "waiting", kind: "main", values: history.all("waiting") }], history.scale()),
    timeline("Pauses and refusals", rows(traces), history.scale(), "no pause, and nothing refused"),
  );
}

function rows(traces) {
  const { slots, number } = history.scale();
  const place = (sample) => slots - 1 - (number - sample);
  return traces
    .filter(([, { paused, refused }]) => paused.length || refused.length)
    .sort(([, a], [, b]) => b.paused.length + b.refused.length - a.paused.length - a.refused.length)
    .slice(0, LANES)
    .map(([name, { paused, refused }]) => ({
      name: el("a", { href: linkTo(name) }, name.slice(name.lastIndexOf(" ") + 1)),
      paused: paused.map(place),
      refused: refused.map(([sample, count]) => [place(sample), count]),
    }));
}
