// What operators change: asks for what a change needs, and for the token, which stays in this page's memory.

import { byId, el, replace } from "/page/dom.js";
import { flow } from "/page/lanes.js";

let token = "";

/** Each change: how it is called, for which rule or lane it is, which fields it needs, and what they come to. */
const CHANGES = {
  pause: { words: "Pause", of: inLane, fields: ["duration"], says: ({ duration }) => (duration.value ? { for: duration.value } : {}) },
  resume: { words: "Resume", of: inLane, fields: [], says: () => ({}) },
  limit: { words: "Limit", of: inRule, fields: ["limits", "duration"], says: ({ limits, duration }) => ({ limits: limits.value, for: duration.value }) },
  weights: { words: "Weights", of: inRule, fields: ["weights"], says: ({ weights }) => ({ weights: parts(weights.value) }) },
  first: { words: "Let first", of: inLane, fields: ["flow"], says: ({ flow }) => JSON.parse(flow.value) },
  drop: { words: "Drop", of: inLane, fields: ["flow"], says: ({ flow }) => JSON.parse(flow.value) },
  forget: { words: "Forget what was learned", of: inLane, fields: [], says: () => ({}) },
  drain: {
    words: "Drain and stop this andante",
    effect: "It takes no new connections, lets queued requests finish within `drain` (30 s unless configured), and exits. There is no way back but a start.",
    of: () => ({}),
    fields: [],
    says: () => ({}),
  },
};

/** A button that asks what is to be done, to this lane, or without one to all. */
export function button(action, lane) {
  const { words } = CHANGES[action];
  const title = lane || action === "drain" ? words : `${words} all`;
  const made = el("button", { type: "button", "data-action": action }, `${title} …`);
  if (CHANGES[action].effect) made.title = CHANGES[action].effect;
  made.addEventListener("click", () => ask(action, lane, title));
  return made;
}

function inLane(lane) {
  return lane ? { rule: lane.rule, host: lane.host } : {};
}

function inRule(lane) {
  return { rule: lane.rule };
}

function parts(text) {
  return text.split(",").map((part) => part.trim()).filter(Boolean);
}

function ask(action, lane, title) {
  const { of, fields, says } = CHANGES[action];
  const dialog = byId("steer");
  const form = dialog.querySelector("form");
  const given = form.elements;
  byId("steer-title").textContent = lane ? `${title}: ${of === inRule ? `rule ${lane.rule}` : lane.host}` : title;
  const effect = byId("steer-effect");
  effect.textContent = CHANGES[action].effect ?? "";
  effect.hidden = !CHANGES[action].effect;
  for (const label of form.querySelectorAll("label[data-field]")) {
    label.hidden = !fields.includes(label.dataset.field);
    // What is hidden must not be asked for.
    label.querySelector("input, select").disabled = label.hidden;
  }
  const [forever] = given.duration.options;
  forever.hidden = forever.disabled = action === "limit";
  given.duration.value = action === "limit" ? "10m" : "";
  given.token.value = token;
  const flows = fields.includes("flow") ? lane.flows() : [];
  replace(given.flow, flows.map((one) => el("option", { value: JSON.stringify({ client: one.client, ...(one.flow ? { flow: one.flow } : {}) }) }, flow(one))));
  said(fields.includes("flow") && !flows.length ? "Nobody waits here." : "");
  form.onsubmit = (event) => {
    if (event.submitter?.value !== "do") return;
    event.preventDefault();
    token = given.token.value.trim();
    call(action, { ...of(lane), ...says(given) }, token).then(
      () => dialog.close(),
      (problem) => said(problem.message),
    );
  };
  dialog.showModal();
}

/** The answer of the API to `body`; an error says why there is none, and has the `status`. */
export async function call(path, body, token) {
  const answer = await fetch(`/api/v1/${path}`, {
    method: "POST",
    headers: { "content-type": "application/json", ...(token ? { authorization: `Bearer ${token}` } : {}) },
    body: JSON.stringify(body),
  });
  const said = await answer.json().catch(() => ({}));
  if (answer.ok) return said;
  throw Object.assign(new Error(`Not done: ${said.title ?? answer.status}. ${said.detail ?? ""}`), { status: answer.status });
}

function said(text) {
  byId("steer-said").textContent = text;
}
