// What is wrong, in sentences: the causes that held messages, and what the kernel's counters say.

import { ask } from "../ask.js";
import { copyButton, el, put } from "../dom.js";
import { findingList } from "../findings.js";
import { count, time } from "../format.js";

const told = (texts) => el("li", {}, texts.map((text, number) => el("p", number ? { class: "next" } : {}, text.trim())));

const causes = (found) => [
  el("p", {}, found.messages
    ? `${count(found.messages)} messages: the median took ${time(found.median_ns)}, the longest ${time(found.worst_ns)}; `
      + `${count(found.slow)} waited for a millisecond or longer.`
    : "There are no messages in the selected part."),
  found.messages && found.finding === null ? el("p", { class: "well" }, "Nothing held the messages for long.") : null,
  el("ol", { class: "causes" }, found.told.slice(0, 5).map(told)),
  el("footer", { class: "notes" }, found.limits.map((each) => el("p", {}, each)), copyButton(found.command)),
];

const findings = (found) => [
  findingList(found.findings),
  found.summary && el("p", { class: found.findings.length ? "" : "well" },
    `${count(found.summary.looked_at)} known problems were looked for, ${found.findings.length || "none"} found.`),
  el("footer", { class: "notes" }, found.notes.map((each) => el("p", {}, each)), copyButton(found.command)),
];

const failed = (error) => [el("p", { class: "nothing" }, error.message)];

export default {
  id: "summary",
  title: "What is wrong",
  where: "recording",
  mount(container, { view }) {
    const places = [el("div"), el("div")];
    container.append(el("h3", {}, "What held the messages"), places[0],
      el("h3", {}, "What the counters say of the whole recording"), places[1]);
    return async (signal) => {
      const parts = [[{ ask: "explain", options: view.selection() }, causes], [{ ask: "findings" }, findings]];
      await Promise.all(parts.map(async ([question, show], number) => {
        const shown = await ask(question, signal).then(show, (error) => {
          if (error.name === "AbortError") throw error;
          return failed(error);
        });
        put(places[number], ...shown.filter(Boolean));
      }));
    };
  },
};
