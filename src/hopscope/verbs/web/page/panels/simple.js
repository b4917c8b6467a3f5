// Panels that are one report.

import { report } from "../ask.js";
import { el, put } from "../dom.js";
import { table } from "../table.js";

const simple = (id, title, name, caption, options = {}, when = () => true) => ({
  id,
  title,
  where: "recording",
  when,
  mount(container, { view }) {
    const place = el("div");
    container.append(place);
    return async (signal) => {
      put(place, table(await report(view, name, options, signal), { caption }));
    };
  },
});

export const interrupts = simple("interrupts", "Interrupts", "interrupts",
  "Interrupts, softirqs and polls: how often, how long, and how long they waited");
export const network = simple("network", "Between hosts", "network",
  "Losses and one-way latencies between hosts, with the bounds of the clocks", {}, (about) => about.recording.hosts.length > 1);

const OTHERS = ["flows", "outliers", "moments", "counters", "calls", "packets", "netdev-times", "events", "summary"];

export const others = {
  id: "reports",
  title: "Other reports",
  where: "recording",
  mount(container, { view, about }) {
    const names = OTHERS.filter((name) => about.recording.reports.includes(name));
    const choice = el("select", { onchange: () => view.set({ report: choice.value }) },
      names.map((name) => el("option", { value: name }, name)));
    const place = el("div");
    container.append(el("p", { class: "controls" }, el("label", {}, "Report ", choice)), place);
    return async (signal) => {
      const name = names.includes(view.get("report")) ? view.get("report") : names[0];
      choice.value = name;
      const found = await report(view, name, { limit: 100 }, signal);
      put(place, ...[found, ...found.more].map((each) => table(each, { caption: `hopscope report ${name}` })));
    };
  },
};
