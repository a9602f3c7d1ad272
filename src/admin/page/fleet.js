// The store that shares limits with other andantes, and who these are.

import { byId, facts, replace } from "/page/dom.js";
import { duration, number } from "/page/words.js";

const STANDINGS = {
  joining: "joining",
  learning: "new, or has lost its data",
  shared: "limits are shared",
  silent: "does not answer, lease still holds",
  "cut-off": "lost: nothing leaves",
  floor: "lost: the floor leaves",
  open: "lost: limits may be exceeded",
};

export function show(fleet) {
  const section = byId("fleet");
  section.hidden = !fleet;
  if (!fleet) return;
  const sound = fleet.standing === "shared" && !fleet.problem;
  replace(
    section.querySelector("dl"),
    facts([
      ["members with a lease", number(fleet.members)],
      ["this one", fleet.member ?? "none yet"],
      ["store", STANDINGS[fleet.standing] ?? fleet.standing, sound ? null : "bad"],
      ["gives out unreported tokens", fleet.learns_for_s === null ? null : `in ${duration(fleet.learns_for_s)} and a window`, "bad"],
      ["address", fleet.store],
      ["lease left", duration(fleet.lease_left_s)],
      ["last call took", `${fleet.last_call_ms.toFixed(1)} ms`],
      ["calls", number(fleet.calls_total)],
      ["calls without an answer", fleet.failed_calls_total ? number(fleet.failed_calls_total) : null, "bad"],
      ["restarts of the store", number(fleet.epoch)],
    ]),
  );
}
