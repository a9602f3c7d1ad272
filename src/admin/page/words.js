// Numbers, times and reasons as people say them.

const WHOLE = new Intl.NumberFormat("en");
const SHORT = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

export const PAUSES = {
  "retry-after": "the API asked for a wait",
  exhausted: "nothing left until the API's reset",
  refused: "the API refused a request",
  banned: "the API has banned this sender",
  breaker: "the upstream fails",
  operator: "paused by an operator",
};

export function number(value) {
  return WHOLE.format(value);
}

/** Requests per second. */
export function pace(perSecond) {
  if (!perSecond) return "0/s";
  return perSecond >= 0.1 ? `${SHORT.format(perSecond)}/s` : `${SHORT.format(perSecond * 60)}/min`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const whole = Math.max(0, Math.round(seconds));
  if (seconds < 10) return `${Math.max(0, seconds).toFixed(1)} s`;
  if (whole < 120) return `${whole} s`;
  if (whole < 7200) return `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, "0")} s`;
  if (whole < 172800) return `${Math.floor(whole / 3600)} h ${String(Math.floor((whole % 3600) / 60)).padStart(2, "0")} min`;
  return `${(whole / 86400).toFixed(1)} days`;
}

/** A length of time that a chart spans. */
export function span(seconds) {
  return seconds >= 60 && seconds % 60 === 0 ? `${seconds / 60} min` : duration(seconds);
}

export function ago(seconds) {
  if (seconds < 1) return "now";
  return seconds < 10 ? `${Math.floor(seconds)} s ago` : `${duration(seconds)} ago`;
}

export function pause(gate, now) {
  const why = PAUSES[gate.reason] ?? gate.reason;
  const left = gate.until_s === null ? "until somebody resumes" : gate.until_s <= now ? "trying" : `${duration(gate.until_s - now)} left`;
  return `paused, ${left}: ${why}`;
}

export function percent(share) {
  return `${(100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;
}
