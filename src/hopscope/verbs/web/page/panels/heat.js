// A heat map of each hop over time; dragging selects the period that all panels show.

import { ask } from "../ask.js";
import { copyButton, el, put } from "../dom.js";
import { count, tick, time } from "../format.js";
import { HeatMap } from "../heat.js";

const COLUMNS = 120;

export const KEYS = "Drag to select a period. Keys: arrows move, Shift with arrows extends, Enter selects, Escape leaves.";

const asTable = (hop, bounds) => {
  const span = bounds.at(-1) - bounds[0];
  const rows = hop.count.map((packets, column) => el("tr", {},
    el("td", { class: "figure" }, tick(bounds[column], span / 10)),
    el("td", { class: "figure" }, count(packets)),
    el("td", { class: "figure" }, time(hop.p50_ns[column])),
    el("td", { class: "figure" }, time(hop.p95_ns[column]))));
  const head = ["from", "packets", "p50", "p95"].map((name) => el("th", { scope: "col", class: "figure" }, name));
  return el("div", { class: "scroll low" }, el("table", {},
    el("caption", {}, `${hop.hop} over time`), el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows)));
};

/** Figures of the same as what is drawn, made when somebody opens them. */
const details = (hop, bounds) => {
  const box = el("details", { ontoggle: () => box.open && box.children.length === 1 && box.append(asTable(hop, bounds)) },
    el("summary", {}, "As a table"));
  return box;
};

export default {
  id: "heat",
  title: "Hops over time",
  where: "recording",
  mount(container, { view }) {
    const legend = el("p", { class: "hint" },
      el("span", { class: "key key-1" }, "p50"), el("span", { class: "key key-2" }, "p95"),
      el("span", { class: "key key-rate" }, "packets/s"), el("span", { id: "keys-heat" }, KEYS));
    const maps = el("div", { class: "maps" });
    const foot = el("footer", { class: "notes" });
    container.append(legend, maps, foot);
    const brush = (from, until) => view.set({ from: Number(from.toFixed(9)), until: Number(until.toFixed(9)) });
    let drawn = [];
    return async (signal) => {
      const found = await ask({ ask: "heat", columns: COLUMNS, options: view.selection() }, signal);
      drawn.forEach((each) => each.observer.disconnect());
      drawn = found.hops.map((hop) => new HeatMap(hop, found.bounds_s, brush));
      put(maps, ...drawn.map((each, number) => {
        each.element.append(details(found.hops[number], found.bounds_s));
        return each.element;
      }));
      drawn.forEach((each) => each.draw());
      if (!drawn.length) maps.append(el("p", { class: "nothing" }, "No packet took a hop in the selected part."));
      put(foot, copyButton(found.command));
    };
  },
};
