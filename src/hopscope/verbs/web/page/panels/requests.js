// The slowest requests; the chosen one as the way to the server, the time in it, and the way back.

import { ask, report } from "../ask.js";
import { el, put } from "../dom.js";
import { time } from "../format.js";
import { table } from "../table.js";
import { explained, waterfall } from "../waterfall.js";

const PARTS = [["request_ns", "request"], ["server_ns", "server"], ["answer_ns", "answer"]];

const stages = (row) => {
  let after = 0;
  return PARTS.filter(([name]) => row[name] !== null).map(([name, point]) => {
    const stage = { point, after_ns: after, duration_ns: row[name], causes: [], told: true };
    after += row[name];
    return stage;
  });
};

export default {
  id: "requests",
  title: "Slowest requests",
  where: "recording",
  mount(container, { view }) {
    const [place, open] = [el("div"), el("div", { class: "open", "aria-live": "polite" })];
    container.append(place, open);
    return async (signal) => {
      const found = await report(view, "requests", { limit: 20 }, signal);
      const choose = (row) => view.set({ request: String(row.begin_ns) });
      put(place, table(found, { caption: "The slowest requests; choose one to see where its time went", choose }));
      const row = found.rows.find((each) => String(each.begin_ns) === view.get("request"));
      if (!row) {
        put(open);
        return;
      }
      const why = await ask({ ask: "message", request: true, begin_ns: row.begin_ns }, signal);
      const title = `${time(row.total_ns)}, ${row.flow_name}; most of it, ${time(row.blame_ns)}, in ${row.blame}`;
      put(open, explained(why), waterfall(title, row.total_ns, stages(row)));
    };
  },
};
