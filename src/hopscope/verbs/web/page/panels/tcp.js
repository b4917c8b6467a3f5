// TCP connections; the chosen one's windows, round-trip time and packets in flight over time.

import { report } from "../ask.js";
import { el, put } from "../dom.js";
import { lines } from "../lines.js";
import { table } from "../table.js";

const CHARTS = [
  ["Packets", "count", [["cwnd", "congestion window"], ["in_flight", "in flight"], ["ssthresh", "slow start threshold"]]],
  ["Round-trip time", "ns", [["srtt_ns", "smoothed round-trip time"]]],
  ["Windows", "bytes", [["snd_wnd_bytes", "peer's receive window"], ["rcv_wnd_bytes", "own receive window"], ["unacked_bytes", "sent, not acknowledged"]]],
  ["Acknowledged", "bytes", [["acked_bytes", "acknowledged bytes"]]],
];
const MOST = 5000;

const charts = (history) => {
  const x = history.rows.map((row) => row.at_ns / 1e9);
  return CHARTS.map(([title, unit, series]) =>
    lines(title, x, series.map(([column, name]) => ({ name, unit, values: history.rows.map((row) => row[column] ?? null) }))));
};

export default {
  id: "tcp",
  title: "TCP connections",
  where: "recording",
  mount(container, { view }) {
    const [place, open] = [el("div"), el("div", { class: "open" })];
    container.append(place, open);
    return async (signal) => {
      const found = await report(view, "tcp", {}, signal);
      const choose = (row) => view.set({ connection: row.flow_name });
      put(place, table(found, { caption: "TCP connections; choose one to see it over time", choose }));
      const flow = view.get("connection");
      if (!flow) {
        put(open);
        return;
      }
      const history = await report(view, "tcp", { flow: [flow], history: true, limit: MOST }, signal);
      const figures = el("details", {}, el("summary", {}, "As a table"), table(history, { caption: `${flow}, segment by segment` }));
      put(open, el("h3", {}, el("bdi", {}, flow)), ...charts(history), figures);
    };
  },
};
