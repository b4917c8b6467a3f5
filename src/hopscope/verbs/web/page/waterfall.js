// Stages of a message or a request as bars on one axis, and the cause in a sentence.

import { copyButton, el } from "./dom.js";
import { time } from "./format.js";

/** `stages` are {point, after_ns, duration_ns, causes, told}, as the report's waterfall has them. */
export const waterfall = (title, total_ns, stages) => el("table", { class: "waterfall" },
  el("caption", {}, el("bdi", {}, title)),
  el("thead", {}, el("tr", {}, ["until", "took", "when", "held by"].map((name) => el("th", { scope: "col" }, name)))),
  el("tbody", {}, stages.map((stage) => {
    const bar = el("span", { class: "bar" });
    bar.style.marginInlineStart = `${(100 * stage.after_ns) / total_ns}%`;
    bar.style.width = `max(2px, ${(100 * stage.duration_ns) / total_ns}%)`;
    return el("tr", {},
      el("th", { scope: "row" }, stage.point),
      el("td", { class: "figure" }, stage.told ? time(stage.duration_ns) : "–"),
      el("td", { class: "track" }, bar),
      el("td", {}, stage.causes.join(", ")));
  })));

/** The sentences of `hopscope explain`, of one message or request. */
export const explained = (found) => el("div", { class: "explained" },
  found.told.slice(0, 1).map((texts) => texts.map((text) => el("p", {}, text.trim()))),
  copyButton(found.command));
