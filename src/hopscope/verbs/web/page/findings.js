// Findings of `hopscope check`: a sentence each, with evidence and what can be done.

import { copyButton, el } from "./dom.js";

const evidence = (row) => {
  const by = row.by === null ? "" : ` (+${row.by})`;
  return el("li", {}, `${row.counter}${row.subject ? ` of ${row.subject}` : ""}: ${row.now ?? "–"}${by}`);
};

const fix = ({ command, note }) =>
  el("li", {}, command ? [el("code", {}, command), " ", copyButton(command, "Copy")] : null, note ? ` ${note}` : null);

/** Findings as a list, the worst first. */
export const findingList = (findings) => el("ul", { class: "findings" }, findings.map((each) => el("li", { class: each.severity },
  el("p", {}, el("strong", { class: "badge" }, each.severity), " ", el("bdi", {}, each.sentence)),
  el("details", {}, el("summary", {}, "Evidence, and what to do"),
    el("p", {}, each.why), el("ul", {}, each.evidence.map(evidence)), el("ul", {}, each.fixes.map(fix))))));
