// The table of hops, grouped or not.

import { report } from "../ask.js";
import { el, put } from "../dom.js";
import { table } from "../table.js";

const GROUPS = ["", "flow", "interface", "cpu", "process", "netns", "host"];

export default {
  id: "hops",
  title: "Hops",
  where: "recording",
  mount(container, { view }) {
    const choice = el("select", { onchange: () => view.set({ "hops-by": choice.value }) },
      GROUPS.map((name) => el("option", { value: name }, name || "all together")));
    const place = el("div");
    container.append(el("p", { class: "controls" }, el("label", {}, "Grouped by ", choice)), place);
    return async (signal) => {
      const by = GROUPS.includes(view.get("hops-by")) ? view.get("hops-by") : "";
      choice.value = by;
      const found = await report(view, "hops", by ? { "group-by": by, limit: 50 } : {}, signal);
      put(place, table(found, { caption: "Hops of packets: how many, and how long" }));
    };
  },
};
