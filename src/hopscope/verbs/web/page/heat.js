// Durations over time: one cell for each bucket of the histogram and slice of time, with the median, the 95th
// percentile and the rate of packets. Dragging, or Shift with the arrow keys, selects a period.

import { el, put } from "./dom.js";
import { count, tick, time } from "./format.js";

const TALL = 120;
const RATE = 26;
const LEFT = 58;
const BOTTOM = 18;
const PER_OCTAVE = 8;
const ZERO_INDEX = 192;
const LEAST_ROWS = 10;

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const rgb = (name) => colour(name).match(/[0-9a-f]{2}/gi).map((part) => parseInt(part, 16));
// The place of a duration among the buckets: their bounds are equidistant in the logarithm.
const place = (ns) => PER_OCTAVE * Math.log2(ns / 1e9) + ZERO_INDEX;

export class HeatMap {
  /** Who makes it puts it into the page, and then calls draw(): until then it has no size, and no pointer has a place in it.
   *  `hop` is as the server sends it, `bounds` are those of the slices, in s; `brush(from, until)` is told a period. */
  constructor(hop, bounds, brush) {
    this.brush = brush;
    this.canvas = el("canvas", { tabindex: 0, role: "img", "aria-describedby": "keys-heat" });
    this.line = el("output", { class: "told" });
    this.title = el("figcaption", {}, el("bdi", {}, hop.hop));
    this.element = el("figure", { class: "heat" }, this.title, this.canvas, this.line);
    this.cursor = null;
    this.anchor = null;
    this.update(hop, bounds);
    this.#listen();
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.element);
  }

  update(hop, bounds) {
    this.hop = hop;
    this.bounds = bounds;
    const slots = hop.cells.map(([, slot]) => slot);
    this.low = Math.min(...slots);
    this.high = Math.max(...slots, this.low + LEAST_ROWS - 1);
    this.most = Math.max(...hop.cells.map(([, , samples]) => samples));
    const label = `${hop.hop}: heat map of durations over time; the table below it has the figures`;
    this.canvas.setAttribute("aria-label", label);
    if (this.observer) this.draw();
  }

  get columns() {
    return this.bounds.length - 1;
  }

  draw() {
    const width = Math.max(this.element.clientWidth, 160);
    const rows = this.high - this.low + 1;
    const height = TALL + RATE + BOTTOM;
    const scale = window.devicePixelRatio || 1;
    this.canvas.width = width * scale;
    this.canvas.height = height * scale;
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    const pen = this.canvas.getContext("2d");
    pen.scale(scale, scale);
    this.plot = { left: LEFT, width: width - LEFT - 4, height: TALL, cell: TALL / rows };
    this.#cells(pen, rows);
    this.#axes(pen, height);
    this.#rates(pen, height);
    this.#percentile(pen, this.hop.p50_ns, "--line-1", []);
    this.#percentile(pen, this.hop.p95_ns, "--line-2", [4, 3]);
    this.#marked(pen, height);
  }

  #x(column) {
    return this.plot.left + (column / this.columns) * this.plot.width;
  }

  #y(ns) {
    return (this.high - place(ns)) * this.plot.cell;
  }

  #cells(pen, rows) {
    const picture = new OffscreenCanvas(this.columns, rows);
    const small = picture.getContext("2d");
    const image = small.createImageData(this.columns, rows);
    const [weak, strong] = [rgb("--heat-low"), rgb("--heat-high")];
    for (const [column, slot, samples] of this.hop.cells) {
      const strength = Math.log1p(samples) / Math.log1p(this.most);
      const pixel = ((this.high - slot) * this.columns + column) * 4;
      for (let part = 0; part < 3; part += 1) {
        image.data[pixel + part] = weak[part] + (strong[part] - weak[part]) * strength;
      }
      image.data[pixel + 3] = 255;
    }
    small.putImageData(image, 0, 0);
    pen.imageSmoothingEnabled = false;
    pen.fillStyle = colour("--plot");
    pen.fillRect(this.plot.left, 0, this.plot.width, this.plot.height);
    pen.drawImage(picture, this.plot.left, 0, this.plot.width, this.plot.height);
  }

  #axes(pen, height) {
    pen.font = `11px ${getComputedStyle(document.body).fontFamily}`;
    pen.fillStyle = colour("--faint");
    pen.strokeStyle = colour("--grid");
    pen.lineWidth = 1;
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const ns of this.#ticks()) {
      const y = this.#y(ns);
      pen.fillText(time(ns).replace(/\.0+ /, " "), this.plot.left - 6, y);
      pen.beginPath();
      pen.moveTo(this.plot.left, Math.round(y) + 0.5);
      pen.lineTo(this.plot.left + this.plot.width, Math.round(y) + 0.5);
      pen.stroke();
    }
    const span = this.bounds.at(-1) - this.bounds[0];
    pen.textBaseline = "alphabetic";
    const ends = [["left", this.bounds[0], 0], ["right", this.bounds.at(-1), this.columns]];
    for (const [align, seconds, column] of ends) {
      pen.textAlign = align;
      pen.fillText(tick(seconds, span), this.#x(column), height - 4);
    }
  }

  /** Durations of the axis: powers of ten, or more of them where fewer than two can be seen. */
  #ticks() {
    const decades = Array.from({ length: 10 }, (_, power) => 10 ** (power + 2));
    const seen = (factors) => decades.flatMap((ns) => factors.map((factor) => factor * ns))
      .filter((ns) => this.#y(ns) >= 6 && this.#y(ns) <= this.plot.height - 4);
    const choices = [[1], [1, 2, 5], [1, 1.5, 2, 3, 4, 5, 7]].map(seen);
    return choices.find((each) => each.length > 1) ?? choices.at(-1);
  }

  #rates(pen, height) {
    const most = Math.max(...this.hop.per_s);
    const below = height - BOTTOM;
    pen.fillStyle = colour("--rate");
    this.hop.per_s.forEach((rate, column) => {
      const tall = rate ? Math.max((rate / most) * (RATE - 6), 1) : 0;
      pen.fillRect(this.#x(column), below - tall, Math.max(this.plot.width / this.columns, 1), tall);
    });
    pen.fillStyle = colour("--faint");
    pen.textAlign = "right";
    pen.fillText(`${count(Math.round(most))}/s`, this.plot.left - 6, below - 6);
  }

  #percentile(pen, values, name, dashes) {
    pen.strokeStyle = colour(name);
    pen.lineWidth = 1.2;
    pen.setLineDash(dashes);
    pen.beginPath();
    let drawing = false;
    values.forEach((ns, column) => {
      if (ns) {
        const y = Math.min(Math.max(this.#y(ns), 1), this.plot.height - 1);
        if (!drawing) pen.moveTo(this.#x(column), y);
        else pen.lineTo(this.#x(column), y);
        pen.lineTo(this.#x(column + 1), y);
      }
      drawing = Boolean(ns);
    });
    pen.stroke();
    pen.setLineDash([]);
  }

  #marked(pen, height) {
    if (this.cursor === null) return;
    const [first, last] = this.#chosen();
    pen.fillStyle = colour("--brush");
    pen.fillRect(this.#x(first), 0, this.#x(last + 1) - this.#x(first), height - BOTTOM);
  }

  #chosen() {
    const anchor = this.anchor ?? this.cursor;
    return [Math.min(anchor, this.cursor), Math.max(anchor, this.cursor)];
  }

  #column(event) {
    const x = event.clientX - this.canvas.getBoundingClientRect().left - this.plot.left;
    return Math.min(Math.max(Math.floor((x / this.plot.width) * this.columns), 0), this.columns - 1);
  }

  #tell() {
    if (this.cursor === null) {
      put(this.line);
      return;
    }
    const [first, last] = this.#chosen();
    const span = this.bounds.at(-1) - this.bounds[0];
    const period = `${tick(this.bounds[first], span / 10)} to ${tick(this.bounds[last + 1], span / 10)}`;
    const { hop, cursor } = this;
    const told = first === last
      ? `${period}: ${count(hop.count[cursor])} packets, p50 ${time(hop.p50_ns[cursor])}, p95 ${time(hop.p95_ns[cursor])}`
      : `${period}: release, or Enter, selects this period`;
    put(this.line, told);
  }

  #move(column, extend) {
    if (!extend) this.anchor = null;
    else this.anchor ??= this.cursor ?? column;
    this.cursor = Math.min(Math.max(column, 0), this.columns - 1);
    this.#tell();
    this.draw();
  }

  #select() {
    if (this.cursor === null || !this.brush) return;
    const [first, last] = this.#chosen();
    this.brush(this.bounds[first], this.bounds[last + 1]);
  }

  #leave() {
    this.cursor = null;
    this.anchor = null;
    this.#tell();
    this.draw();
  }

  #listen() {
    const { canvas } = this;
    canvas.addEventListener("pointerdown", (event) => {
      if (!this.brush || event.button) return;
      canvas.setPointerCapture(event.pointerId);
      this.dragging = true;
      this.cursor = this.#column(event);
      this.anchor = this.cursor;
    });
    canvas.addEventListener("pointermove", (event) => {
      this.#move(this.#column(event), this.dragging);
    });
    canvas.addEventListener("pointerup", () => {
      const dragged = this.dragging && this.anchor !== this.cursor;
      this.dragging = false;
      if (dragged) this.#select();
    });
    canvas.addEventListener("pointerleave", () => !this.dragging && this.#leave());
    canvas.addEventListener("blur", () => this.#leave());
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -1e6, End: 1e6 }[event.key];
      if (step) this.#move((this.cursor ?? 0) + step, event.shiftKey);
      else if (event.key === "Enter") this.#select();
      else if (event.key === "Escape") this.#leave();
      else return;
      event.preventDefault();
    });
  }
}
