// The last quarter of an hour, as the stream sends it: all of it when the page is opened, then each sample.

/** A chart of a younger history is as long as this many samples, so that its lines are not squeezed into a corner. */
const FEWEST = 36;

let step = 5;
let most = 180;
let number = 0;
let total = {};
let lanes = {};

/** Takes over what was sent. Samples that are known already are left out. */
export function take(sent) {
  const known = sent.whole ? 0 : number;
  const fresh = sent.number - known;
  if (fresh <= 0) return;
  if (sent.whole) [total, lanes] = [{}, {}];
  ({ step_s: step, samples: most, number } = sent);
  for (const [name, values] of Object.entries(sent.total)) total[name] = joined(total[name], values, fresh);
  const before = lanes;
  lanes = {};
  const recent = (at) => at > number - most;
  for (const name of new Set([...Object.keys(before), ...Object.keys(sent.lanes)])) {
    // A lane that is not named was quiet.
    const trace = sent.lanes[name] ?? { limit: before[name].limit, sent: Array(Math.min(fresh, most)).fill(0), paused: [], refused: [] };
    const joint = {
      limit: trace.limit,
      sent: joined(before[name]?.sent, trace.sent, fresh),
      paused: [...(before[name]?.paused ?? []), ...trace.paused.filter((at) => at > known)].filter(recent),
      refused: [...(before[name]?.refused ?? []), ...trace.refused.filter(([at]) => at > known)].filter(([at]) => recent(at)),
    };
    if (joint.sent.some(Boolean) || joint.paused.length || joint.refused.length) lanes[name] = joint;
  }
}

function joined(known = [], values, fresh) {
  return [...known, ...values.slice(-fresh)].slice(-most);
}

/** How the samples lie in time: a chart of `slots` samples, one every `step` seconds, the last one of this `number`. */
export function scale() {
  return { step, slots: Math.min(most, Math.max(FEWEST, all("sent").length)), number };
}

/** Samples of all lanes together, the oldest first. */
export function all(name) {
  return total[name] ?? [];
}

/** How many there were in all samples. */
export function count(name) {
  return all(name).reduce((sum, value) => sum + value, 0);
}

/** A lane: what it sent, the pace that its limits allow, and in which samples it paused or was refused something; `undefined` if it was quiet. */
export function trace(name) {
  return lanes[name];
}

export function traces() {
  return Object.entries(lanes);
}

/** Counts of samples as a pace. */
export function perSecond(counts) {
  return counts.map((value) => value / step);
}
