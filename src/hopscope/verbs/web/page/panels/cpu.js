// CPU time by interrupt, softirq and process, over time and as a flame graph of the selected period.

import { ask, report } from "../ask.js";
import { el, put } from "../dom.js";
import { flameGraph } from "../flame.js";
import { lines } from "../lines.js";
import { table } from "../table.js";

const GROUPS = { "": "part", cpu: "CPU", process: "process", cgroup: "cgroup" };

export default {
  id: "cpu",
  title: "CPU time",
  where: "recording",
  mount(container, { view }) {
    const choice = el("select", { onchange: () => view.set({ "cpu-by": choice.value }) },
      Object.entries(GROUPS).map(([value, name]) => el("option", { value }, name)));
    const [chart, place, graph] = [el("div"), el("div"), el("div", { class: "flame" })];
    container.append(el("p", { class: "controls" }, el("label", {}, "By ", choice)), chart, place, graph);
    return async (signal) => {
      const by = view.get("cpu-by") in GROUPS ? view.get("cpu-by") : "";
      choice.value = by;
      const options = { limit: 20, ...(by ? { "group-by": by } : {}) };
      const [found, rows] = await Promise.all([
        ask({ ask: "cpu", by, options: view.selection() }, signal),
        report(view, "cpu", options, signal),
      ]);
      const series = found.series.map(({ name, shares }) => ({ name, unit: "part", values: shares }));
      put(chart, rows.rows.length ? lines(`Share of a CPU by ${GROUPS[by]}`, found.bounds_s.slice(0, -1), series) : null);
      put(place, table(rows, { caption: "CPU time, without what interrupted it" }));
      put(graph, rows.rows.length ? flameGraph("cpu", view, "Flame graph of CPU time by CPU; the table above has the sums") : null);
    };
  },
};
