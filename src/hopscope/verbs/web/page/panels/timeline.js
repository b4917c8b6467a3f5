// CPUs, messages and tasks over time, down to the nanosecond, and the list of events in step with the picture.

import { ask, report } from "../ask.js";
import { clean, copyButton, el, put } from "../dom.js";
import { count, exact, time } from "../format.js";
import { table } from "../table.js";
import { Timeline } from "../timeline.js";

// Who answers: events are at hand at once; what takes long is prepared by the process that also runs queries.
const PARTS = { events: "timeline", activity: "details", messages: "details" };
const EVENTS = 40;
const REST_MS = 150;
const NAMES = ["from", "until", "a", "b", "used"].map((name) => `timeline-${name}`);
// Numbers of a CPU and of a thread beyond these are of a further host (host_numbers.py).
const CPUS = 1024;
const THREADS = 1 << 22;
const COLUMNS = ["at", "since_a", "host", "cpu", "point", "comm", "tid", "interface", "flow_name", "len_bytes"];
const KEYS = "Drag to zoom in, click for marker A, Shift-click for B. Keys: arrows pan, + and - zoom, Home shows all, a and b set markers at the pointer, Escape removes them; the wheel zooms while the picture has the focus.";
const LEGEND = [["running", "running"], ["runnable", "woken, waits for a CPU"], ["asleep", "asleep"], ["message", "message"], ["packet", "packet event"], ["socket", "socket event"], ["softirq", "interrupt or softirq"], ["loss", "drop or loss"], ["mark", "mark"]];

const waits = (ms, signal) => new Promise((resolve, reject) => {
  const timer = setTimeout(resolve, ms);
  signal.addEventListener("abort", () => { clearTimeout(timer); reject(new DOMException("", "AbortError")); });
});

const fresh = (controller) => {
  controller?.abort();
  return new AbortController();
};

class Panel {
  constructor(container, { view, about }) {
    this.state = view;
    this.hosts = about.recording.hosts;
    this.picture = new Timeline({
      changed: () => this.moved(), marked: () => this.moved(), told: (hit, ns, keep) => this.tell(hit, ns, keep),
    });
    this.told = el("output", { class: "told" });
    this.markers = el("output", { class: "markers" });
    this.status = el("p", { class: "hint", role: "status" });
    this.list = el("div");
    this.foot = el("footer", { class: "notes" });
    container.append(this.controls(), el("p", { class: "hint legend" }, LEGEND.map(([name, text]) => el("span", { class: `key key-${name}` }, text))),
      this.picture.element, this.told, this.markers, this.status,
      el("p", { class: "hint", id: "keys-timeline" }, KEYS), this.list, this.foot);
    // Somebody's link, opened where the page is open already.
    window.addEventListener("hashchange", () => this.chosen !== undefined && this.restore(this.period));
  }

  controls() {
    const button = (text, action, title = text) => el("button", { type: "button", class: "quiet", title, onclick: action }, text);
    this.text = el("input", { type: "search", placeholder: "event, task or flow", size: 18, "aria-label": "Search the timeline" });
    const { picture } = this;
    this.inUse = el("input", { type: "checkbox", onchange: () => { picture.filter(this.inUse.checked); this.moved(); } });
    return el("form", { class: "controls", onsubmit: (event) => { event.preventDefault(); this.search(); } },
      button("−", () => picture.zoom(2), "Zoom out"), button("+", () => picture.zoom(0.5), "Zoom in"), button("Whole", () => picture.whole()),
      button("A to B", () => this.between(), "Show what is between the markers"),
      button("Select for all panels", () => this.select(), "Have all panels show the period of the picture"),
      el("label", {}, this.inUse, " only rows in use"),
      this.text, el("button", { type: "submit" }, "Next"));
  }

  /** Fill all of it: another selection, or the first time. */
  async fill(signal) {
    const options = this.state.selection();
    const period = [options.from, options.until];
    delete options.from;
    delete options.until;
    const chosen = JSON.stringify(options);
    if (chosen !== this.chosen) {
      this.picture.clear();
      this.options = options;
      const found = await this.asked("events", {}, signal);
      this.chosen = chosen;
      this.started = Number(found.started_ns);
      this.picture.extent = found.extent_ns;
      this.picture.show("events", found);
      put(this.foot, found.notes.map((note) => el("p", {}, note)), copyButton(found.command, "Copy as command: export of the timeline"));
      this.restore(period);
    } else if (JSON.stringify(period) !== JSON.stringify(this.period)) {
      this.follow(period);
      this.load();
    }
    this.period = period;
    this.picture.draw();
  }

  /** Begin with what the address says, or the page's period, or all of it. */
  restore(period) {
    const [from, until, a, b, used] = NAMES.map((name) => (this.state.get(name) === undefined ? NaN : Number(this.state.get(name))));
    this.picture.markers = { a: Number.isFinite(a) ? a : null, b: Number.isFinite(b) ? b : null };
    this.inUse.checked = used === 1;
    this.picture.filter(used === 1);
    if (until > from) this.picture.look(from, until, { quiet: true });
    else this.follow(period);
    this.load();
  }

  follow([from, until]) {
    const [first, last] = this.picture.extent;
    this.picture.look(from === undefined ? first : from * 1e9, until === undefined ? last : until * 1e9, { quiet: true });
  }

  asked(part, more, signal) {
    return ask({ ask: PARTS[part], part, options: this.options, columns: this.picture.columns, ...more }, signal);
  }

  moved() {
    const { view, markers } = this.picture;
    const values = [...view, markers.a, markers.b, this.inUse.checked ? 1 : null];
    this.state.set(Object.fromEntries(NAMES.map((name, place) => [name, values[place] === null ? undefined : String(values[place])])), { keep: true });
    this.load();
  }

  /** Ask for the view, draw each part when it comes, and then list events and name their flows, when the view rests. */
  async load() {
    this.aborted = fresh(this.aborted);
    const { signal } = this.aborted;
    const [from_ns, until_ns] = this.picture.view;
    const moves = this.picture.element.dataset.state === "asking";
    this.tellMarkers();
    this.#state("asking");
    const left = new Set(Object.keys(PARTS));
    const waited = () => put(this.status, left.size ? `Preparing ${[...left].join(", ")} …` : "");
    const one = async (part) => {
      this.picture.show(part, await this.asked(part, { from_ns, until_ns }, signal));
      left.delete(part);
      waited();
    };
    try {
      // One step is asked for at once; of a view that moves on, where it rests a little.
      if (moves) await waits(REST_MS / 3, signal);
      const list = this.events(signal);
      if (Object.keys(PARTS).some((part) => !this.picture.parts[part])) waited();
      await Promise.all([Promise.all(Object.keys(PARTS).map(one)).then(() => this.#state("drawn")), list]);
      if (this.picture.parts.events.marks.has_flows) this.picture.show("events", await this.asked("events", { from_ns, until_ns, flows: true }, signal));
      this.#state("shown");
    } catch (error) {
      if (error.name !== "AbortError") put(this.status, error.message);
    }
  }

  /** How far the picture is: asking, drawn, or shown with its list and the names of flows. */
  #state(name) {
    this.picture.element.dataset.state = name;
  }

  /** The events from marker A on, or from where the picture begins. */
  async events(signal) {
    await waits(REST_MS, signal);
    const { view: [begin, end], markers: { a } } = this.picture;
    const from = a === null ? begin : a;
    const until = Math.max(end, from + 1_000_000);
    const found = await report(this.state, "events", { from: from / 1e9, until: until / 1e9, limit: EVENTS }, signal);
    found.columns.push({ name: "at", unit: "exact", title: "time", meaning: "since the recording began", rank: 0 });
    found.columns.push({ name: "since_a", unit: "ns", title: "since A", meaning: "time since marker A", rank: 0 });
    found.columns.push({ name: "host", unit: "text", title: "host", meaning: "on which it was", rank: 0 });
    found.notes = [];
    for (const row of found.rows) {
      row.host = this.hosts[Math.floor(row.cpu / CPUS)];
      row.cpu %= CPUS;
      row.tid %= THREADS;
      row.ns = row.time_ns - this.started;
      row.at = exact(row.ns);
      row.since_a = a === null ? null : row.ns - a;
    }
    const choose = (row) => { this.picture.reveal(row.ns); this.picture.mark("a", row.ns); };
    const left = [a === null && "since_a", this.hosts.length < 2 && "host"];
    const columns = COLUMNS.filter((name) => !left.includes(name));
    put(this.list, table(found, { caption: `Events from ${a === null ? "the begin of the picture" : "marker A"} on; choose one to set marker A`, choose, columns }));
  }

  tell(hit, ns, keep = false) {
    const message = keep && hit?.message;
    put(this.told, hit ? el("bdi", {}, `${clean(hit.place[0].label)}: ${hit.text()}`) : exact(ns),
      message ? [" ", el("a", { href: "#messages", "data-panel": "messages", onclick: () => this.state.set({ message: String(message) }) }, "What held it?")] : null);
  }

  tellMarkers() {
    const { a, b } = this.picture.markers;
    const [from, until] = this.picture.view;
    const both = a !== null && b !== null;
    put(this.markers, [`${exact(from)} to ${exact(until)} (${time(until - from)})`,
      a === null ? "" : `A ${exact(a)}`, b === null ? "" : `B ${exact(b)}`,
      both ? `A to B: ${count(b - a)} ns (${time(b - a)})` : ""].filter(Boolean).join(" · "));
  }

  between() {
    const { a, b } = this.picture.markers;
    if (a === null || b === null || a === b) put(this.status, "Set both markers first: click, and Shift-click.");
    else this.picture.look(Math.min(a, b), Math.max(a, b));
  }

  select() {
    const [from, until] = this.picture.view;
    this.state.set({ from: from / 1e9, until: until / 1e9 });
  }

  /** Go to the next event or interval with this text, or to the row that has it. */
  async search() {
    const text = this.text.value.trim();
    if (!text) return;
    const { picture } = this;
    const wanted = text.toLowerCase();
    const row = picture.rows.find((each) => each.label.toLowerCase().includes(wanted));
    const after_ns = Math.round(picture.markers.a ?? picture.view[0] - 1);
    put(this.status, "Searching …");
    try {
      const answers = await Promise.all(Object.keys(picture.parts).map((part) => this.asked(part, { find: text, after_ns })));
      const hits = answers.map((each) => each.found).filter(Boolean).sort((a, b) => a.at_ns - b.at_ns);
      if (hits.length) {
        put(this.status, `${clean(hits[0].name)} at ${exact(hits[0].at_ns)}`);
        picture.mark("a", hits[0].at_ns);
        picture.reveal(hits[0].at_ns, hits[0].row);
      } else if (row) {
        put(this.status, `Row ${row.label}`);
        picture.reveal(picture.view[0], row.id);
      } else put(this.status, `Nothing later is called ${clean(text)}.`);
    } catch (error) {
      put(this.status, error.message);
    }
  }
}

export default {
  id: "timeline",
  title: "Timeline",
  where: "recording",
  first: true,
  mount(container, context) {
    const panel = new Panel(container, context);
    return (signal) => panel.fill(signal);
  },
};
