// What happened lately.

import { el } from "/page/dom.js";
import { linkTo } from "/page/lanes.js";
import { ago } from "/page/words.js";

/** Events as rows, the newest first; each with a link to its lane, if they are of several. */
export function events(news, now, named) {
  return news.toReversed().map(({ at_s, host, rule, text }) =>
    el("li", {}, el("time", {}, ago(now - at_s)), named ? el("a", { href: linkTo(`${rule} ${host}`) }, host) : null, named ? `: ${text}` : text),
  );
}
