// The picture of a timeline on a canvas: rows of CPUs, messages and tasks. It draws what the server sent for a view
// (timeline.py), and while another view is on its way, the last one at the new scale.
//
// Times are ns since the recording began, which are exact in JavaScript for 104 days.

import { clean, el } from "./dom.js";
import { count, time } from "./format.js";

// The width of the names, which is less on a telephone.
const LEFT = 176;
const AXIS = 24;
const TALL = { cpu: 30, task: 18, messages: 30 };
const LINES = 6;
const LEAST_NS = 10;
const NEAR = 5;
const STATES = { running: "--good", reading: "--line-1", throttled: "--bad", stopped: "--faint" };
const TASKS = ["--good", "--accent", "--line-1", "--line-2", "--rate", "--warn"];
const IDLE = ["asleep", "stopped"];
const KINDS = {
  packet: "--accent", socket: "--line-1", cpu: "--faint", tcp: "--line-2", event: "--line-3", drop: "--bad", loss: "--bad",
  mark: "--warn", irq: "--line-2", softirq: "--accent", message: "--rate", stage: "--accent",
};
const COLOURS = ["--paper", "--panel", "--plot", "--text", "--faint", "--border", "--grid", "--brush", "--warn", ...TASKS, ...Object.values(STATES), ...Object.values(KINDS)];

/** A time, with as many digits as the step of the axis has. */
const atTime = (ns, step) => `${(ns / 1e9).toFixed(Math.min(Math.max(Math.ceil(9 - Math.log10(step)), 0), 9))} s`;

export const exact = (ns) => `${(ns / 1e9).toFixed(9)} s`;

/** Tasks that are beside each other on a CPU should differ. */
const taskColour = (name) => TASKS[[...name].reduce((sum, letter) => (sum * 31 + letter.codePointAt(0)) % 65521, 7) % TASKS.length];

const niceStep = (least) => {
  const size = 10 ** Math.floor(Math.log10(least));
  return Math.max(1, size * [1, 2, 5, 10].find((factor) => factor * size >= least));
};

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
    this.#listen();
    new ResizeObserver(() => this.#resized()).observe(this.element);
  }

  get columns() {
    return Math.max(Math.round(this.#width), 1);
  }

  get #width() {
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
    return this.left + ((ns - this.view[0]) / (this.view[1] - this.view[0])) * this.#width;
  }

  ns(x) {
    return this.view[0] + ((x - this.left) / this.#width) * (this.view[1] - this.view[0]);
  }

  #y(row) {
    return AXIS + row.y - this.element.scrollTop;
  }

  draw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.#draw();
    });
  }

  #draw() {
    const style = getComputedStyle(document.documentElement);
    this.colour = Object.fromEntries(COLOURS.map((name) => [name, style.getPropertyValue(name).trim()]));
    const scale = window.devicePixelRatio || 1;
    const pen = this.canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.fillStyle = this.colour["--paper"];
    pen.fillRect(0, 0, this.width, this.height);
    pen.font = `11px ${getComputedStyle(document.body).fontFamily}`;
    this.#grid(pen);
    pen.save();
    pen.beginPath();
    pen.rect(this.left, AXIS, this.width - this.left, this.height - AXIS);
    pen.clip();
    this.hits = [];
    const parts = Object.values(this.parts);
    parts.forEach((part) => this.#spans(pen, part));
    parts.forEach((part) => this.#marks(pen, part));
    parts.forEach((part) => this.#arrows(pen, part));
    this.#chosen(pen);
    pen.restore();
    this.#markers(pen);
  }

  #shown(row) {
    const y = this.#y(row);
    return y + row.tall > AXIS && y < this.height;
  }

  #grid(pen) {
    pen.textBaseline = "middle";
    pen.textAlign = "left";
    for (const row of this.rows) {
      if (!this.#shown(row)) continue;
      const y = this.#y(row);
      pen.fillStyle = row.kind === "cpu" ? this.colour["--plot"] : this.colour["--panel"];
      pen.fillRect(this.left, y, this.width - this.left, row.tall);
      if (row.id === this.found) {
        pen.fillStyle = this.colour["--brush"];
        pen.fillRect(0, y, this.width, row.tall);
      }
      pen.fillStyle = row.kind === "task" ? this.colour["--faint"] : this.colour["--text"];
      pen.fillText(row.label, row.kind === "task" ? 14 : 6, y + row.tall / 2, this.left - 20);
    }
    pen.fillStyle = this.colour["--paper"];
    pen.fillRect(0, 0, this.width, AXIS);
    const step = niceStep((this.view[1] - this.view[0]) / Math.max(this.#width / 130, 1));
    pen.fillStyle = this.colour["--faint"];
    pen.strokeStyle = this.colour["--grid"];
    pen.lineWidth = 1;
    for (let at = Math.ceil(this.view[0] / step) * step; at < this.view[1]; at += step) {
      const x = Math.round(this.x(at)) + 0.5;
      pen.beginPath();
      pen.moveTo(x, AXIS - 6);
      pen.lineTo(x, this.height);
      pen.stroke();
      if (x < this.width - 70) pen.fillText(atTime(at, step), x + 3, AXIS / 2);
    }
    pen.fillText(`${time(step)} per line`, 6, AXIS / 2, this.left - 12);
  }

  /** Where a strip is drawn: its row, top and height; undefined: it is not seen. */
  #place(part, which, strip) {
    const [id, line, kind] = part.strips[which][strip];
    const row = this.byId.get(id);
    if (!row || !this.#shown(row)) return undefined;
    const y = this.#y(row);
    if (row.kind === "messages") {
      const tall = row.tall / LINES;
      return kind === "stage" ? [row, y + line * tall + tall - 2, 2, kind] : [row, y + line * tall, tall - 1, kind];
    }
    if (kind === "task") return [row, y + 12, row.tall - 13, kind];
    if (row.kind === "cpu") return [row, y + row.tall - 6 + line * 2, kind === "loss" ? 6 : 5 - line * 2, kind];
    return [row, y + 3, row.tall - 8, kind];
  }

  #spans(pen, part) {
    const { spans, from_ns: base, until_ns: end, texts } = part;
    const step = (end - base) / spans.columns;
    const places = part.strips[1].map((_, strip) => this.#place(part, 1, strip));
    spans.cell_strip.forEach((strip, index) => {
      const place = places[strip];
      if (!place) return;
      const from = this.x(base + spans.cell_column[index] * step);
      const until = this.x(base + (spans.cell_column[index] + 1) * step);
      const share = Math.min(spans.cell_busy[index] / step, 1);
      this.#span(pen, place, from, until, texts[spans.cell_name[index]], 0.35 + 0.65 * share);
      this.hits.push({ place, from, until, text: () => `${count(spans.cell_count[index])} × ${place[3]}, such as ${texts[spans.cell_name[index]]}, ${time(spans.cell_busy[index])} together` });
    });
    spans.strip.forEach((strip, index) => {
      const place = places[strip];
      if (!place) return;
      const begin = base + spans.at[index];
      const from = this.x(begin);
      const until = this.x(begin + spans.length[index]);
      if (until < this.left || from > this.width) return;
      const name = texts[spans.name[index]];
      const detail = texts[spans.detail[index]];
      this.#span(pen, place, from, until, name, 1, true);
      const what = place[3] === "thread" ? "" : `${place[3]} `;
      const number = place[3] === "loss" && spans.number[index] ? `, ${count(spans.number[index])} events` : "";
      this.hits.push({
        place, from, until, begin, message: place[3] === "message" ? begin : null,
        text: () => `${what}${name}${detail ? `, ${detail}` : ""}${number}: ${time(spans.length[index])} from ${exact(begin)}`,
      });
    });
  }

  #span(pen, [row, y, tall, kind], from, until, name, strength, labelled = false) {
    const x = Math.max(from, this.left - 2);
    const wide = Math.max(Math.min(until, this.width + 2) - x, 1);
    if (kind === "thread" && name === "asleep") {
      pen.fillStyle = this.colour["--border"];
      pen.fillRect(x, y + tall / 2, wide, 1);
      return;
    }
    const colour = this.colour[kind === "thread" ? STATES[name] ?? "--warn" : kind === "task" ? taskColour(name) : KINDS[kind] ?? "--rate"];
    // A hollow box is the time between wake-up and running.
    if (kind === "thread" && name === "runnable" && wide > 3) {
      pen.strokeStyle = this.colour["--warn"];
      pen.lineWidth = 1.5;
      pen.strokeRect(x + 0.75, y + 0.75, wide - 1.5, tall - 1.5);
    } else {
      pen.globalAlpha = strength * (kind === "loss" ? 0.55 : kind === "message" ? 0.7 : 1);
      pen.fillStyle = colour;
      pen.fillRect(x, y, wide, tall);
      pen.globalAlpha = 1;
    }
    if (!labelled || wide < 50 || tall < 9) return;
    pen.save();
    pen.beginPath();
    pen.rect(x, y, wide, tall);
    pen.clip();
    pen.fillStyle = kind === "thread" && name === "runnable" ? this.colour["--text"] : this.colour["--paper"];
    pen.fillText(clean(name), x + 4, y + tall / 2);
    pen.restore();
  }

  #marks(pen, part) {
    const { marks, from_ns: base, until_ns: end, texts } = part;
    const step = (end - base) / marks.columns;
    const places = part.strips[0].map((_, strip) => this.#place(part, 0, strip));
    const most = Math.log1p(marks.count.reduce((a, b) => Math.max(a, b), 1));
    marks.strip.forEach((strip, index) => {
      const place = places[strip];
      if (!place) return;
      const [row, , , kind] = place;
      const many = marks.count[index];
      const at = base + marks.at[index];
      const from = many === 1 ? this.x(at) : this.x(base + marks.column[index] * step);
      const until = many === 1 ? from + 1.2 : Math.max(this.x(base + (marks.column[index] + 1) * step), from + 1.2);
      if (until < this.left || from > this.width) return;
      const y = this.#y(row);
      pen.fillStyle = this.colour[KINDS[kind] ?? "--faint"];
      const tall = kind === "cpu" ? 4 : (row.kind === "cpu" ? 5 + 6 * (Math.log1p(many) / most) : row.tall - 10);
      if (kind === "mark") {
        pen.fillRect(from, AXIS, 1.5, this.height - AXIS);
        pen.fillText(clean(texts[marks.name[index]]), from + 4, y + 6);
      } else if (kind === "drop" || kind === "loss") {
        pen.beginPath();
        pen.moveTo(from - 4, y);
        pen.lineTo(from + 5, y);
        pen.lineTo(from + 0.5, y + 9);
        pen.fill();
      } else pen.fillRect(from, row.kind === "cpu" ? y + 11 - tall : y + row.tall - tall - 1, until - from, tall);
      const detail = texts[marks.detail[index]];
      this.hits.push({
        place, from: from - 1, until: until + 1, begin: at, mark: true,
        text: () => many === 1
          ? `${texts[marks.name[index]]}${detail ? `, ${detail}` : ""}, at ${exact(at)}`
          : `${count(many)} × ${kind}, the first ${texts[marks.name[index]]} at ${exact(at)}`,
      });
    });
  }

  /** All messages in the view, from the send call over the CPUs to the read. */
  #arrows(pen, part) {
    const { arrows, from_ns: base } = part;
    if (!arrows.number.length) return;
    pen.strokeStyle = this.colour["--line-2"];
    pen.fillStyle = this.colour["--line-2"];
    pen.globalAlpha = this.#arrowStrength(arrows, base);
    pen.lineWidth = 1;
    arrows.number.forEach((_, index) => {
      let last = null;
      arrows.at.forEach((times, stop) => {
        const row = times[index] === null ? null : this.byId.get(arrows.row[stop][index]);
        if (!row) return;
        const point = [this.x(base + times[index]), this.#y(row) + row.tall / 2];
        if (last) this.#line(pen, last, point, stop === arrows.at.length - 1);
        last = point;
      });
    });
    pen.globalAlpha = 1;
  }

  /** Where many are at one place, what is below them stays visible. */
  #arrowStrength({ at, number }, base) {
    const per = new Map();
    for (const ns of at[0]) {
      const column = Math.round(this.x(base + ns) / 4);
      per.set(column, (per.get(column) ?? 0) + 1);
    }
    const crowd = Math.max(number.length / Math.max(per.size, 1), 1);
    return Math.min(Math.max(1.6 / crowd, 0.08), 0.8);
  }

  #line(pen, [x, y], [toX, toY], head) {
    if ((x < this.left && toX < this.left) || (x > this.width && toX > this.width)) return;
    pen.beginPath();
    pen.moveTo(x, y);
    pen.lineTo(toX, toY);
    pen.stroke();
    if (!head) return;
    const turn = Math.atan2(toY - y, toX - x);
    pen.beginPath();
    pen.moveTo(toX, toY);
    for (const side of [0.4, -0.4]) pen.lineTo(toX - 7 * Math.cos(turn + side), toY - 7 * Math.sin(turn + side));
    pen.fill();
  }

  #chosen(pen) {
    if (!this.drag?.moved) return;
    pen.fillStyle = this.colour["--brush"];
    pen.fillRect(this.drag.x, AXIS, this.pointer.x - this.drag.x, this.height - AXIS);
  }

  #markers(pen) {
    for (const [name, ns] of Object.entries(this.markers)) {
      if (ns === null) continue;
      const x = this.x(ns);
      if (x < this.left || x > this.width) continue;
      pen.fillStyle = this.colour[name === "a" ? "--good" : "--bad"];
      pen.fillRect(x - 0.75, 0, 1.5, this.height);
      pen.fillRect(x - 7, 0, 14, 15);
      pen.fillStyle = this.colour["--paper"];
      pen.textAlign = "center";
      pen.fillText(name.toUpperCase(), x, 8);
      pen.textAlign = "left";
    }
  }

  /** What is drawn at a place, marks before intervals, short ones before long ones. */
  at({ x, y }) {
    const near = (this.hits ?? []).filter((hit) => {
      const top = this.#y(hit.place[0]);
      return y >= top && y < top + hit.place[0].tall && x >= hit.from - NEAR && x <= hit.until + NEAR;
    });
    const off = (hit) => Math.max(hit.from - x, x - hit.until, 0) + (hit.mark ? -2 : 0);
    const inside = (hit) => (hit.place[0].kind === "messages" && (y < hit.place[1] || y > hit.place[1] + hit.place[2]) ? 1e3 : 0);
    return near.sort((a, b) => inside(a) + off(a) - inside(b) - off(b) || a.until - a.from - (b.until - b.from))[0] ?? null;
  }

  #point(event) {
    const box = this.canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  #listen() {
    const { canvas } = this;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      canvas.setPointerCapture(event.pointerId);
      this.pointer = this.#point(event);
      this.drag = { ...this.pointer, moved: false };
    });
    canvas.addEventListener("pointermove", (event) => {
      this.pointer = this.#point(event);
      if (this.drag && Math.abs(this.pointer.x - this.drag.x) > 4) this.drag.moved = true;
      if (this.drag) this.draw();
      else this.told(this.at(this.pointer), this.ns(this.pointer.x));
    });
    canvas.addEventListener("pointerup", (event) => this.#released(event));
    canvas.addEventListener("pointercancel", () => { this.drag = null; this.draw(); });
    canvas.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    canvas.addEventListener("keydown", (event) => this.#key(event));
  }

  #released(event) {
    const { drag } = this;
    this.drag = null;
    if (!drag) return;
    this.pointer = this.#point(event);
    const ends = [drag.x, this.pointer.x].sort((a, b) => a - b).map((x) => this.ns(Math.max(x, this.left)));
    if (drag.moved) {
      this.look(...ends);
      return;
    }
    const hit = this.at(this.pointer);
    if (this.pointer.x < this.left) return;
    this.told(hit, this.ns(this.pointer.x), true);
    const begin = hit?.begin >= this.view[0] ? hit.begin : this.ns(this.pointer.x);
    this.mark(event.shiftKey ? "b" : "a", begin);
  }

  #wheel(event) {
    if (document.activeElement !== this.canvas && !event.ctrlKey) return;
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan(Math.sign(event.deltaX || event.deltaY) * 0.1);
    else this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.ns(this.#point(event).x));
    event.preventDefault();
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const here = this.pointer && this.pointer.x >= this.left ? this.ns(this.pointer.x) : (this.view[0] + this.view[1]) / 2;
    const does = {
      ArrowLeft: () => this.pan(-0.2), ArrowRight: () => this.pan(0.2),
      ArrowUp: () => { this.element.scrollTop -= 40; }, ArrowDown: () => { this.element.scrollTop += 40; },
      "+": () => this.zoom(0.5, here), "=": () => this.zoom(0.5, here), "-": () => this.zoom(2, here),
      Home: () => this.whole(),
      a: () => this.mark("a", here), b: () => this.mark("b", here),
      Escape: () => { this.mark("a", null); this.mark("b", null); },
    }[event.key];
    if (!does) return;
    does();
    event.preventDefault();
  }
}
