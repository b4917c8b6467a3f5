// Panels of this host, now. Each is drawn anew with a frame, and keeps where the keyboard is.

import { measure } from "../ask.js";
import { copyButton, el, put, say } from "../dom.js";
import { findingList } from "../findings.js";
import { count } from "../format.js";
import { HeatMap } from "../heat.js";
import { lines } from "../lines.js";
import { table } from "../table.js";

const AREAS = { rx: "received", tx: "sent", cpu: "CPU", drops: "drops", sockets: "sockets", check: "findings" };
const TARGETS = { rx: "live-hops", tx: "live-hops", cpu: "live-cpu", drops: "live-drops", sockets: "live-sockets", check: "live-findings" };

const text = (name, title, rank = 0) => ({ name, title, unit: "text", meaning: title, rank });
const figure = (name, title, unit, rank = 0) => ({ name, title, unit, meaning: title, rank });

const made = (columns, rows, more = {}) => ({ columns, rows, heading: [], notes: [], left_out: 0, ...more });

const absent = (frame, area) => el("p", { class: "nothing" }, frame.absent[area] ?? "Waiting for the first interval.");

/** A panel that `draw` fills; `controls` are above it, and stay. */
const live = (id, title, draw, command, controls = () => null) => ({
  id,
  title,
  where: "live",
  mount(container, { live: stream }) {
    const place = el("div");
    const above = controls(stream);
    if (above) container.append(above);
    container.append(place, el("footer", { class: "notes" }, command ? copyButton(command) : null));
    return async () => {
      if (stream.last) put(place, ...draw(stream.last, stream).filter(Boolean));
      else put(place, el("p", { class: "status" }, "Attaching to the kernel …"));
    };
  },
});

const filter = (stream) => {
  const text = el("input", { size: 30, placeholder: "--port 443 --protocol tcp", autocomplete: "off", spellcheck: "false", "aria-label": "Options that select traffic" });
  const apply = (options) => measure({ only: options }).catch((error) => say(error.message));
  stream.addEventListener("frame", () => {
    if (stream.last && document.activeElement !== text) text.value = stream.last.only;
  });
  return el("form", { class: "controls", onsubmit: (event) => { event.preventDefault(); apply(text.value); } },
    el("label", {}, "Only ", text), " ", el("button", { type: "submit" }, "Apply"), " ",
    el("button", { type: "button", class: "quiet", onclick: () => apply("") }, "Everything"));
};

export const now = live("live-now", "Now", (frame) => [
  el("ul", { class: "findings" }, frame.worst.map((each) => el("li", { class: each.harm },
    el("p", {}, el("strong", { class: "badge" }, el("a", { href: `#${TARGETS[each.area]}`, "data-panel": TARGETS[each.area] }, AREAS[each.area])),
      " ", el("bdi", {}, each.sentence))))),
  el("p", { class: frame.lost ? "error" : "hint" }, frame.lost ? `Lost: ${frame.lost}` : "Nothing was lost.", frame.cost ? ` Cost ${frame.cost}.` : ""),
], "sudo hopscope top", filter);

const HOPS = [text("hop", "hop"), text("group", "of", 2), figure("count", "count", "count"), figure("mean_ns", "mean", "ns", 3),
  figure("p50_ns", "p50", "ns"), figure("p90_ns", "p90", "ns", 1), figure("p99_ns", "p99", "ns"), figure("max_ns", "max", "ns")];

const hopRows = (snapshot) => snapshot.hops.filter((row) => row.count).map((row) => ({ ...row, group: Object.values(row.group ?? {}).join(", ") || null }));

export const hops = live("live-hops", "Hops", (frame) => ["rx", "tx"].flatMap((area) => [
  el("h3", {}, area === "rx" ? "Received" : "Sent"),
  frame[area]
    ? table(made(HOPS.filter((column) => column.name !== "group"), hopRows(frame[area]), { notes: frame[area].notes }), { caption: `Hops of ${area}, last interval` })
    : absent(frame, area),
]), "sudo hopscope rx");

const CPU_COLUMNS = (rows) => {
  const parts = [...new Set(rows.flatMap((row) => row.parts.map((part) => part.part)))];
  return [text("who", "of"), figure("ns", "total", "ns"), ...parts.map((part) => figure(`part ${part}`, part, "ns"))];
};

const cpuRow = (row) => ({
  who: Object.entries(row.group).map(([key, value]) => `${key} ${value}`).join(", ") || "all",
  ns: row.ns,
  ...Object.fromEntries(row.parts.map((part) => [`part ${part.part}`, part.ns || null])),
});

const GROUPS = { "": "nothing", process: "process", cgroup: "cgroup", interface: "interface" };

const cpuGroups = (stream) => {
  const choice = el("select", { onchange: () => { stream.cpu = null; measure({ cpu_by: choice.value }).catch((error) => say(error.message)); } },
    Object.entries(GROUPS).map(([value, name]) => el("option", { value }, name)));
  stream.addEventListener("restart", () => { choice.value = ""; });
  return el("p", { class: "controls" }, el("label", {}, "Also by ", choice));
};

const overFrames = (stream, area, value) => {
  const frames = stream.frames.filter((frame) => frame[area]);
  return [frames.map((frame) => frame.since_s), frames.map(value)];
};

export const cpu = live("live-cpu", "CPU time by part of the stack", (frame, stream) => {
  if (!frame.cpu) return [absent(frame, "cpu")];
  const rows = [frame.cpu.total, ...frame.cpu.rows];
  const parts = frame.cpu.total.parts.map((part) => part.part).slice(0, 6);
  const [x] = overFrames(stream, "cpu", () => 0);
  const series = parts.map((name) => ({
    name,
    unit: "ns",
    values: overFrames(stream, "cpu", (each) => each.cpu.total.parts.find((part) => part.part === name)?.ns ?? null)[1],
  }));
  const report = made(CPU_COLUMNS(rows), rows.map(cpuRow), { notes: frame.cpu.notes });
  const by = stream.cpu && table(made(CPU_COLUMNS(stream.cpu.cpu.rows), stream.cpu.cpu.rows.map(cpuRow), { notes: stream.cpu.cpu.notes }), { caption: `CPU time of the last interval, by ${stream.cpu.by}` });
  return [lines("CPU time of each interval", x, series), table(report, { caption: "CPU time of the last interval, by CPU and part" }), by];
}, "sudo hopscope cpu", cpuGroups);

export const drops = live("live-drops", "Drops", (frame) => {
  if (!frame.drops) return [absent(frame, "drops")];
  const keys = [...new Set(frame.drops.rows.flatMap((row) => Object.keys(row.group)))];
  const rows = frame.drops.rows.map((row) => ({ ...row.group, packets: row.packets }));
  return [table(made([figure("packets", "packets", "count"), ...keys.map((key) => text(key, key))], rows, { notes: frame.drops.notes }), { caption: "Packets that were dropped in the last interval" })];
}, "sudo hopscope drops");

const SOCKETS = [text("name", "socket"), text("state", "state", 1), text("who", "process", 1), text("told", "what is wrong")];

const socketRow = (row) => ({
  name: `${row.protocol} ${row.local}:${row.local_port} > ${row.peer}:${row.peer_port}`,
  state: row.state,
  who: (row.processes ?? []).map((each) => `${each.comm ?? each.name} (${each.pid})`).join(", ") || null,
  told: row.told || null,
});

export const sockets = live("live-sockets", "Sockets", (frame) => (frame.sockets
  ? [el("p", {}, `${count(frame.sockets.sockets)} sockets; those with most trouble first.`),
    table(made(SOCKETS, frame.sockets.rows.map(socketRow), { notes: frame.sockets.notes }), { caption: "Sockets" })]
  : [absent(frame, "sockets")]), "sudo hopscope sockets --sort trouble");

export const findings = live("live-findings", "Findings", (frame) => (frame.check
  ? [frame.check.length ? findingList(frame.check) : el("p", { class: "well" }, "No known problem was found.")]
  : [absent(frame, "check")]), "sudo hopscope check");

/** Frames side by side as the slices of a heat map. */
const together = (frames) => {
  const found = new Map();
  frames.forEach((frame, column) => {
    for (const part of frame.heat) {
      if (!found.has(part.hop)) {
        const nothing = () => frames.map(() => null);
        found.set(part.hop, { hop: part.hop, cells: [], count: frames.map(() => 0), per_s: frames.map(() => 0), p50_ns: nothing(), p95_ns: nothing() });
      }
      const hop = found.get(part.hop);
      hop.cells.push(...part.cells.map(([, slot, samples]) => [column, slot, samples]));
      for (const name of ["count", "per_s", "p50_ns", "p95_ns"]) [hop[name][column]] = part[name];
    }
  });
  return [...found.values()];
};

export const heat = {
  id: "live-heat",
  title: "Hops over time",
  where: "live",
  mount(container, { live: stream }) {
    const maps = el("div", { class: "maps" });
    container.append(el("p", { class: "hint" }, el("span", { class: "key key-1" }, "p50"), el("span", { class: "key key-2" }, "p95"),
      el("span", { class: "key key-rate" }, "packets/s")), maps);
    const known = new Map();
    return async () => {
      const frames = stream.frames.filter((frame) => frame.rx || frame.tx);
      if (frames.length < 1) return;
      const width = frames[0].rx?.interval_s ?? stream.interval ?? 1;
      const bounds = [frames[0].since_s - width, ...frames.map((frame) => frame.since_s)];
      for (const hop of together(frames)) {
        if (known.has(hop.hop)) known.get(hop.hop).update(hop, bounds);
        else {
          known.set(hop.hop, new HeatMap(hop, bounds, null));
          maps.append(known.get(hop.hop).element);
          known.get(hop.hop).draw();
        }
      }
    };
  },
};

export const LIVE = [now, heat, hops, cpu, drops, sockets, findings];
