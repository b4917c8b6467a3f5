// Two periods, or two recordings, side by side, with how certain a difference is.

import { ask } from "../ask.js";
import { el, put } from "../dom.js";
import { at } from "../format.js";
import { table } from "../table.js";

const period = (from, until) => (from === undefined && until === undefined
  ? "the whole recording"
  : `${from === undefined ? "the beginning" : at(from)} to ${until === undefined ? "the end" : at(until)}`);

export default {
  id: "compare",
  title: "Compare",
  where: "recording",
  mount(container, { view, about }) {
    const { other } = about.recording;
    const keep = el("button", { type: "button", onclick: () => view.set({ "second-from": view.get("from"), "second-until": view.get("until") }) },
      "Keep the selected period as B");
    const forget = el("button", { type: "button", class: "quiet", onclick: () => view.set({ "second-from": undefined, "second-until": undefined }) }, "Forget B");
    const [what, place] = [el("p", { class: "hint" }), el("div")];
    container.append(el("p", { class: "controls" }, keep, " ", forget), what, place);
    return async (signal) => {
      const second = { "second-from": view.get("second-from"), "second-until": view.get("second-until") };
      const has = second["second-from"] !== undefined || second["second-until"] !== undefined;
      const first = period(view.get("from"), view.get("until"));
      if (!has && !other) {
        put(what, "Select a period in the heat map, keep it as B, then select another one, which is A. "
          + "`hopscope web TRACE --compare TRACE2` compares two recordings.");
        put(place);
        return;
      }
      put(what, el("bdi", {}, has
        ? `A is ${first}, B is ${period(second["second-from"], second["second-until"])}.`
        : `A is ${first} of ${about.recording.folder}, B the same of ${other}.`));
      const options = { ...view.selection(), ...(has ? Object.fromEntries(Object.entries(second).filter(([, value]) => value !== undefined)) : {}) };
      const found = await ask({ ask: "report", name: "compare", other: !has, options }, signal);
      put(place, table(found, { caption: "Hops whose durations differ, and how certain that is" }));
    };
  },
};
