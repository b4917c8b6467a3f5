// The picture of a timeline on a canvas: rows of CPUs, messages and tasks. It draws what the server sent for a view
// (timeline.py), and while another view is on its way, the last one at the new scale.
//
// Times are ns since the recording began, which are exact in JavaScript for 104 days.

import { clean, el } from "./dom.js";
import { count } from "./format.js";
import { Input } from "./timeline-input.js";
import { AXIS, Painter } from "./timeline-paint.js";

// The width of the names, which is less on a telephone.
const LEFT = 176;
const TALL = { cpu: 30, task: 18, messages: 30 };
const LEAST_NS = 10;
const IDLE = ["asleep", "stopped"];

const byOrder = (a, b) => {
  for (let place = 0; place < a.order.length; place += 1) {
    if (a.order[place] !== b.order[place]) return a.order[place] - b.order[place];
  }
  return 0;
};

export class Timeline {
  /** `changed()` is called when the view is another one, `marked()` when a marker is, `told(what)` with what is pointed at. */
  constructor({ changed, marked, told }) {
    Object.assign(this, { changed, marked, told });
    this.parts = {};
    this.rows = [];
    this.extent = [0, 1];
    Object.assign(this, { width: 0, height: 0, left: LEFT });
    this.view = [0, 1];
    this.markers = { a: null, b: null };
    this.pointer = null;
    this.found = null;
    this.canvas = el("canvas", { tabindex: 0, role: "img", "aria-describedby": "keys-timeline" });
    this.spacer = el("div");
    this.element = el("div", { class: "timeline" }, this.canvas, this.spacer);
    this.element.addEventListener("scroll", () => this.draw());
    this.painter = new Painter(this);
    new Input(this);
    new ResizeObserver(() => this.#resized()).observe(this.element);
  }

  get columns() {
    return Math.max(Math.round(this.drawnWidth), 1);
  }

  get drawnWidth() {
    return Math.max(this.width - this.left, 60);
  }

  clear() {
    this.parts = {};
    this.rows = [];
    this.found = null;
  }

  /** Show rows without anything in the view, or leave them out. */
  filter(onlyUsed) {
    this.onlyUsed = onlyUsed;
    this.#arrange();
  }

  /** Take an answer of the server. */
  show(part, answer) {
    this.parts[part] = answer;
    this.#arrange();
  }

  #used() {
    const used = new Set();
    for (const { strips, marks, spans, arrows, texts } of Object.values(this.parts)) {
      marks.strip.forEach((strip) => used.add(strips[0][strip][0]));
      const idle = (name) => IDLE.includes(texts[name]);
      spans.strip.forEach((strip, index) => idle(spans.name[index]) || used.add(strips[1][strip][0]));
      spans.cell_strip.forEach((strip, index) => idle(spans.cell_name[index]) || used.add(strips[1][strip][0]));
      arrows.row.forEach((rows, stop) => rows.forEach((row, index) => arrows.at[stop][index] === null || used.add(row)));
    }
    return used;
  }

  #arrange() {
    const known = new Map();
    for (const each of Object.values(this.parts)) {
      for (const [id, name, kind, order] of each.rows) known.set(id, { id, label: clean(name), kind, order });
    }
    this.rows = [...known.values()].sort(byOrder);
    if (this.onlyUsed) {
      const used = this.#used();
      this.rows = this.rows.filter((row) => used.has(row.id));
    }
    let y = 0;
    for (const row of this.rows) {
      row.y = y;
      row.tall = TALL[row.kind];
      y += row.tall + 2;
    }
    this.byId = new Map(this.rows.map((row) => [row.id, row]));
    this.total = y;
    this.element.style.height = `${y + AXIS + 8}px`;
    this.#describe();
    this.#resized();
  }

  /** Say for who does not see it what the picture has. */
  #describe() {
    const all = Object.values(this.parts);
    const sum = (of) => count(all.reduce((total, part) => total + of(part), 0));
    const added = (values) => values.reduce((a, b) => a + b, 0);
    const events = sum(({ marks }) => added(marks.count));
    const intervals = sum(({ spans }) => spans.strip.length + added(spans.cell_count));
    const messages = sum(({ arrows }) => added(arrows.count));
    const label = `Timeline with ${count(this.rows.length)} rows: ${events} events, ${intervals} intervals, ${messages} messages with arrows. The table below lists the events.`;
    this.canvas.setAttribute("aria-label", label);
  }

  /** Look at [from, until). */
  look(from, until, { quiet = false } = {}) {
    const most = Math.max((this.extent[1] - this.extent[0]) * 1.1, 100);
    const span = Math.min(Math.max(until - from, LEAST_NS), most);
    const begin = Math.round((from + until - span) / 2);
    this.view = [begin, begin + Math.max(Math.round(span), LEAST_NS)];
    this.draw();
    if (!quiet) this.changed();
  }

  whole() {
    this.look(...this.extent);
  }

  zoom(factor, at = null) {
    const [from, until] = this.view;
    const middle = at ?? (from + until) / 2;
    this.look(middle - (middle - from) * factor, middle + (until - middle) * factor);
  }

  pan(part) {
    const by = (this.view[1] - this.view[0]) * part;
    this.look(this.view[0] + by, this.view[1] + by);
  }

  mark(name, ns) {
    this.markers[name] = ns === null ? null : Math.round(ns);
    this.draw();
    this.marked();
  }

  /** Bring a time and a row to where they are seen. */
  reveal(ns, id = null) {
    const [from, until] = this.view;
    if (ns < from || ns >= until) this.look(ns - (until - from) / 2, ns + (until - from) / 2);
    this.found = id;
    const row = this.byId?.get(id);
    if (row) this.element.scrollTop = Math.max(row.y - 60, 0);
    this.draw();
  }

  #resized() {
    const width = this.element.clientWidth;
    const height = this.element.clientHeight;
    Object.assign(this, { width, height, left: Math.min(LEFT, width * 0.3) });
    const scale = window.devicePixelRatio || 1;
    this.canvas.width = width * scale;
    this.canvas.height = height * scale;
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.spacer.style.height = `${Math.max((this.total ?? 0) + AXIS - height + 4, 0)}px`;
    const resized = this.columns !== this.drawnColumns && this.rows.length;
    this.drawnColumns = this.columns;
    this.draw();
    if (resized) this.changed();
  }

  x(ns) {
    return this.left + ((ns - this.view[0]) / (this.view[1] - this.view[0])) * this.drawnWidth;
  }

  ns(x) {
    return this.view[0] + ((x - this.left) / this.drawnWidth) * (this.view[1] - this.view[0]);
  }

  y(row) {
    return AXIS + row.y - this.element.scrollTop;
  }

  draw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.painter.draw();
    });
  }
}
