// Dropped packets by place, with stacks, and these as a flame graph.

import { report } from "../ask.js";
import { el, put } from "../dom.js";
import { flameGraph } from "../flame.js";
import { table } from "../table.js";

export default {
  id: "drops",
  title: "Drops",
  where: "recording",
  mount(container, { view }) {
    const box = el("input", { type: "checkbox", onchange: () => view.set({ stacks: box.checked ? "1" : undefined }) });
    const [place, graph] = [el("div"), el("div", { class: "flame" })];
    container.append(el("p", { class: "controls" }, el("label", {}, box, " with kernel stacks, and a flame graph")), place, graph);
    return async (signal) => {
      box.checked = view.get("stacks") === "1";
      const found = await report(view, "drops", box.checked ? { stacks: true } : {}, signal);
      put(place, table(found, { caption: "Dropped packets: why, where, and of which flow" }));
      put(graph, box.checked && found.rows.length ? flameGraph("drops", view, "Flame graph of the stacks of drops; the table above has the same") : null);
    };
  },
};
