// A simulator: when requests would leave under limits. andante computes it, as `andante plan` does; nothing is sent.

import { curves } from "/page/charts.js";
import { byId, el, facts, replace } from "/page/dom.js";
import { call } from "/page/steer.js";
import { duration, number, pace } from "/page/words.js";

const form = byId("plan").querySelector("form");
/** Styles of the lines, in the order of flows. */
const KINDS = ["main", "second", "third", "fourth", "fifth", "sixth"];

/** Starts with the limits of a lane, unless somebody has written others. */
export function suggest(limits) {
  const field = form.elements.limits;
  if (limits && (!field.value || field.value === field.dataset.suggested)) field.value = field.dataset.suggested = limits;
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  run();
});

async function run() {
  const { limits, requests, flows, latency } = form.elements;
  const named = flows.value.split(/[\s]+/).filter(Boolean);
  const question = {
    limits: limits.value,
    ...(named.length ? { flows: named } : { requests: Number(requests.value) }),
    ...(latency.value.trim() ? { latency: latency.value.trim() } : {}),
  };
  const result = byId("plan-result");
  result.setAttribute("aria-busy", "true");
  try {
    const plan = await call("plan", question, form.elements.token.value);
    replace(result, named.length ? ofFlows(plan) : ofBurst(plan, question.requests));
  } catch (problem) {
    // Away from loopback, asking takes the token.
    if (problem.status === 401) byId("plan-token").hidden = false;
    replace(result, el("p", { class: "bad" }, problem.message));
  }
  result.removeAttribute("aria-busy");
}

function ofBurst(plan, requests) {
  const queue = [[0, requests], ...plan.queues[0]];
  return [
    el("dl", { class: "facts", "aria-label": "The plan" }, facts([
      ["drained in", duration(plan.seconds)],
      ["answered in", duration(plan.answered_seconds)],
      ["steady pace", plan.per_second === null ? "unlimited" : pace(plan.per_second)],
      ["held back by", plan.held_back_by ?? "nothing"],
    ])),
    curves("Still waiting", [{ name: "requests", kind: "main", points: queue }], plan.seconds),
    plan.faster.length ? el("p", {}, "Faster, if the API allows it:") : null,
    el("ul", { class: "plain" }, plan.faster.map(({ limits, seconds }) => el("li", {}, attempt(limits), ` ${duration(seconds)}`))),
  ];
}

/** A button that plans the same with other limits. */
function attempt(limits) {
  const made = el("button", { type: "button" }, limits);
  made.addEventListener("click", () => {
    form.elements.limits.value = limits;
    run();
  });
  return made;
}

function ofFlows(plan) {
  const waits = (flow) => flow.would_wait_seconds;
  const end = Math.max(...plan.flows.map((flow) => waits(flow).longest));
  const lines = plan.flows.map((flow, at) => ({ name: flow.flow, kind: KINDS[at % KINDS.length], points: [[0, flow.requests], ...plan.queues[at]] }));
  const row = (flow) => [flow.flow, number(flow.requests), flow.weight, flow.urgency, duration(waits(flow).median), duration(waits(flow).p95), duration(waits(flow).longest)];
  const columns = ["Flow", "Requests", "Weight", "Urgency", "Median wait", "p95", "Longest"];
  return [
    el("dl", { class: "facts", "aria-label": "The plan" }, facts([["drained in", duration(end)]])),
    curves("Still waiting", lines, end),
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Waits of each flow" }, el("table", { "aria-label": "Waits of each flow" }, el("thead", {}, el("tr", {}, columns.map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, plan.flows.map((flow) => el("tr", {}, row(flow).map((cell) => el("td", {}, cell))))))),
  ];
}
