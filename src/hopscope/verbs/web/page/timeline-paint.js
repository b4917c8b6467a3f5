// How a view of the timeline is drawn on its canvas: what the server sent (timeline.py), at the scale of the view.

import { clean } from "./dom.js";
import { count, exact, time } from "./format.js";

// The height of the axis.
export const AXIS = 24;
const LINES = 6;
const STATES = { running: "--good", reading: "--line-1", throttled: "--bad", stopped: "--faint" };
const TASKS = ["--good", "--accent", "--line-1", "--line-2", "--rate", "--warn"];
const KINDS = {
  packet: "--accent", socket: "--line-1", cpu: "--faint", tcp: "--line-2", event: "--line-3", drop: "--bad", loss: "--bad",
  mark: "--warn", irq: "--line-2", softirq: "--accent", message: "--rate", stage: "--accent",
};
const COLOURS = ["--paper", "--panel", "--plot", "--text", "--faint", "--border", "--grid", "--brush", "--warn", ...TASKS, ...Object.values(STATES), ...Object.values(KINDS)];

/** A time, with as many digits as the step of the axis has. */
const atTime = (ns, step) => `${(ns / 1e9).toFixed(Math.min(Math.max(Math.ceil(9 - Math.log10(step)), 0), 9))} s`;

/** Tasks that are beside each other on a CPU should differ. */
const taskColour = (name) => TASKS[[...name].reduce((sum, letter) => (sum * 31 + letter.codePointAt(0)) % 65521, 7) % TASKS.length];

const niceStep = (least) => {
  const size = 10 ** Math.floor(Math.log10(least));
  return Math.max(1, size * [1, 2, 5, 10].find((factor) => factor * size >= least));
};

/** Draws a timeline; `hits` is what was drawn, and where. */
export class Painter {
  hits = [];

  constructor(timeline) {
    this.timeline = timeline;
  }

  draw() {
    const { timeline } = this;
    const style = getComputedStyle(document.documentElement);
    this.colour = Object.fromEntries(COLOURS.map((name) => [name, style.getPropertyValue(name).trim()]));
    const scale = window.devicePixelRatio || 1;
    const pen = timeline.canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.fillStyle = this.colour["--paper"];
    pen.fillRect(0, 0, timeline.width, timeline.height);
    pen.font = `11px ${getComputedStyle(document.body).fontFamily}`;
    this.#grid(pen);
    pen.save();
    pen.beginPath();
    pen.rect(timeline.left, AXIS, timeline.width - timeline.left, timeline.height - AXIS);
    pen.clip();
    this.hits = [];
    const parts = Object.values(timeline.parts);
    parts.forEach((part) => this.#spans(pen, part));
    parts.forEach((part) => this.#marks(pen, part));
    parts.forEach((part) => this.#arrows(pen, part));
    this.#chosen(pen);
    pen.restore();
    this.#markers(pen);
  }

  #shown(row) {
    const { timeline } = this;
    const y = timeline.y(row);
    return y + row.tall > AXIS && y < timeline.height;
  }

  #grid(pen) {
    const { timeline } = this;
    pen.textBaseline = "middle";
    pen.textAlign = "left";
    for (const row of timeline.rows) {
      if (!this.#shown(row)) continue;
      const y = timeline.y(row);
      pen.fillStyle = row.kind === "cpu" ? this.colour["--plot"] : this.colour["--panel"];
      pen.fillRect(timeline.left, y, timeline.width - timeline.left, row.tall);
      if (row.id === timeline.found) {
        pen.fillStyle = this.colour["--brush"];
        pen.fillRect(0, y, timeline.width, row.tall);
      }
      pen.fillStyle = row.kind === "task" ? this.colour["--faint"] : this.colour["--text"];
      pen.fillText(row.label, row.kind === "task" ? 14 : 6, y + row.tall / 2, timeline.left - 20);
    }
    pen.fillStyle = this.colour["--paper"];
    pen.fillRect(0, 0, timeline.width, AXIS);
    const step = niceStep((timeline.view[1] - timeline.view[0]) / Math.max(timeline.drawnWidth / 130, 1));
    pen.fillStyle = this.colour["--faint"];
    pen.strokeStyle = this.colour["--grid"];
    pen.lineWidth = 1;
    for (let at = Math.ceil(timeline.view[0] / step) * step; at < timeline.view[1]; at += step) {
      const x = Math.round(timeline.x(at)) + 0.5;
      pen.beginPath();
      pen.moveTo(x, AXIS - 6);
      pen.lineTo(x, timeline.height);
      pen.stroke();
      if (x < timeline.width - 70) pen.fillText(atTime(at, step), x + 3, AXIS / 2);
    }
    pen.fillText(`${time(step)} per line`, 6, AXIS / 2, timeline.left - 12);
  }

  /** Where a strip is drawn: its row, top and height; undefined: it is not seen. */
  #place(part, which, strip) {
    const { timeline } = this;
    const [id, line, kind] = part.strips[which][strip];
    const row = timeline.byId.get(id);
    if (!row || !this.#shown(row)) return undefined;
    const y = timeline.y(row);
    if (row.kind === "messages") {
      const tall = row.tall / LINES;
      return kind === "stage" ? [row, y + line * tall + tall - 2, 2, kind] : [row, y + line * tall, tall - 1, kind];
    }
    if (kind === "task") return [row, y + 12, row.tall - 13, kind];
    if (row.kind === "cpu") return [row, y + row.tall - 6 + line * 2, kind === "loss" ? 6 : 5 - line * 2, kind];
    return [row, y + 3, row.tall - 8, kind];
  }

  #spans(pen, part) {
    const { timeline } = this;
    const { spans, from_ns: base, until_ns: end, texts } = part;
    const step = (end - base) / spans.columns;
    const places = part.strips[1].map((_, strip) => this.#place(part, 1, strip));
    spans.cell_strip.forEach((strip, index) => {
      const place = places[strip];
      if (!place) return;
      const from = timeline.x(base + spans.cell_column[index] * step);
      const until = timeline.x(base + (spans.cell_column[index] + 1) * step);
      const share = Math.min(spans.cell_busy[index] / step, 1);
      this.#span(pen, place, from, until, texts[spans.cell_name[index]], 0.35 + 0.65 * share);
      this.hits.push({ place, from, until, text: () => `${count(spans.cell_count[index])} × ${place[3]}, such as ${texts[spans.cell_name[index]]}, ${time(spans.cell_busy[index])} together` });
    });
    spans.strip.forEach((strip, index) => {
      const place = places[strip];
      if (!place) return;
      const begin = base + spans.at[index];
      const from = timeline.x(begin);
      const until = timeline.x(begin + spans.length[index]);
      if (until < timeline.left || from > timeline.width) return;
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
    const { timeline } = this;
    const x = Math.max(from, timeline.left - 2);
    const wide = Math.max(Math.min(until, timeline.width + 2) - x, 1);
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
    const { timeline } = this;
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
      const from = many === 1 ? timeline.x(at) : timeline.x(base + marks.column[index] * step);
      const until = many === 1 ? from + 1.2 : Math.max(timeline.x(base + (marks.column[index] + 1) * step), from + 1.2);
      if (until < timeline.left || from > timeline.width) return;
      const y = timeline.y(row);
      pen.fillStyle = this.colour[KINDS[kind] ?? "--faint"];
      const tall = kind === "cpu" ? 4 : (row.kind === "cpu" ? 5 + 6 * (Math.log1p(many) / most) : row.tall - 10);
      if (kind === "mark") {
        pen.fillRect(from, AXIS, 1.5, timeline.height - AXIS);
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
    const { timeline } = this;
    const { arrows, from_ns: base } = part;
    if (!arrows.number.length) return;
    pen.strokeStyle = this.colour["--line-2"];
    pen.fillStyle = this.colour["--line-2"];
    pen.globalAlpha = this.#arrowStrength(arrows, base);
    pen.lineWidth = 1;
    arrows.number.forEach((_, index) => {
      let last = null;
      arrows.at.forEach((times, stop) => {
        const row = times[index] === null ? null : timeline.byId.get(arrows.row[stop][index]);
        if (!row) return;
        const point = [timeline.x(base + times[index]), timeline.y(row) + row.tall / 2];
        if (last) this.#line(pen, last, point, stop === arrows.at.length - 1);
        last = point;
      });
    });
    pen.globalAlpha = 1;
  }

  /** Where many are at one place, what is below them stays visible. */
  #arrowStrength({ at, number }, base) {
    const { timeline } = this;
    const per = new Map();
    for (const ns of at[0]) {
      const column = Math.round(timeline.x(base + ns) / 4);
      per.set(column, (per.get(column) ?? 0) + 1);
    }
    const crowd = Math.max(number.length / Math.max(per.size, 1), 1);
    return Math.min(Math.max(1.6 / crowd, 0.08), 0.8);
  }

  #line(pen, [x, y], [toX, toY], head) {
    const { timeline } = this;
    if ((x < timeline.left && toX < timeline.left) || (x > timeline.width && toX > timeline.width)) return;
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
    const { timeline } = this;
    if (!timeline.drag?.moved) return;
    pen.fillStyle = this.colour["--brush"];
    pen.fillRect(timeline.drag.x, AXIS, timeline.pointer.x - timeline.drag.x, timeline.height - AXIS);
  }

  #markers(pen) {
    const { timeline } = this;
    for (const [name, ns] of Object.entries(timeline.markers)) {
      if (ns === null) continue;
      const x = timeline.x(ns);
      if (x < timeline.left || x > timeline.width) continue;
      pen.fillStyle = this.colour[name === "a" ? "--good" : "--bad"];
      pen.fillRect(x - 0.75, 0, 1.5, timeline.height);
      pen.fillRect(x - 7, 0, 14, 15);
      pen.fillStyle = this.colour["--paper"];
      pen.textAlign = "center";
      pen.fillText(name.toUpperCase(), x, 8);
      pen.textAlign = "left";
    }
  }
}
