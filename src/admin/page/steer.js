// What operators change: asks for the token, and for how long. The token stays in this page's memory.

import { byId, el } from "/page/dom.js";

let token = "";

/** A button that asks what is to be done, to this lane, or without one to all. */
export function button(action, lane) {
  const words = { pause: lane ? "Pause …" : "Pause all …", resume: lane ? "Resume …" : "Resume all …" };
  const made = el("button", { type: "button", "data-action": action }, words[action]);
  made.addEventListener("click", () => ask(action, lane, words[action].replace(" …", "")));
  return made;
}

function ask(action, lane, title) {
  const dialog = byId("steer");
  const form = dialog.querySelector("form");
  byId("steer-title").textContent = lane ? `${title} ${lane.host}` : title;
  byId("steer-length").hidden = action !== "pause";
  form.elements.token.value = token;
  said("");
  form.onsubmit = (event) => {
    if (event.submitter?.value !== "do") return;
    event.preventDefault();
    token = form.elements.token.value.trim();
    const length = action === "pause" ? form.elements.length.value : "";
    send(action, { ...(lane ? { rule: lane.rule, host: lane.host } : {}), ...(length ? { for: length } : {}) }).then(
      () => dialog.close(),
      (problem) => said(problem.message),
    );
  };
  dialog.showModal();
}

async function send(action, change) {
  const answer = await fetch(`/api/v1/${action}`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${token}` },
    body: JSON.stringify(change),
  });
  if (answer.ok) return;
  const problem = await answer.json().catch(() => ({}));
  throw new Error(`Not done: ${problem.title ?? answer.status}. ${problem.detail ?? ""}`);
}

function said(text) {
  byId("steer-said").textContent = text;
}
