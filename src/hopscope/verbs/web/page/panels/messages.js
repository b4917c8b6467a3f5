// The slowest messages; the chosen one as a waterfall.

import { ask, report } from "../ask.js";
import { el, put } from "../dom.js";
import { count, time } from "../format.js";
import { table } from "../table.js";
import { explained, waterfall } from "../waterfall.js";

const COLUMNS = ["begin_ns", "total_ns", "blame", "blame_ns", "len_bytes", "retransmits", "until", "flow_name", "sender", "reader"];
const OF_HOSTS = ["network_ns", "network_bound_ns", "sender_host", "receiver_host"];

const title = (row) =>
  `${time(row.total_ns)}, ${count(row.len_bytes)} bytes, ${row.flow_name}: ${row.sender ?? "?"} to ${row.reader ?? "?"}`;

const one = (found) => [
  explained(found),
  ...found.messages.map((row) => el("div", {}, waterfall(title(row), row.total_ns, row.stages),
    row.missing ? el("p", { class: "hint" }, `not seen: ${row.missing}`) : null)),
];

export default {
  id: "messages",
  title: "Slowest messages",
  where: "recording",
  mount(container, { view, about }) {
    const [place, open] = [el("div"), el("div", { class: "open", "aria-live": "polite" })];
    container.append(place, open);
    const columns = about.recording.hosts.length > 1 ? [...COLUMNS, ...OF_HOSTS] : COLUMNS;
    return async (signal) => {
      const found = await report(view, "messages", { limit: 20 }, signal);
      const choose = (row) => view.set({ message: String(row.begin_ns) });
      put(place, table(found, { caption: "The slowest messages; choose one to see what held it", choose, columns }));
      const begin = Number(view.get("message"));
      if (!view.get("message") || !Number.isSafeInteger(begin)) {
        put(open);
        return;
      }
      put(open, ...one(await ask({ ask: "message", begin_ns: begin }, signal)));
    };
  },
};
