// The page: it logs in, asks what there is, and gives each panel a container, the view and a way to ask.
//
// A panel is a module with {id, title, where: "recording" or "live", when(about), mount(container, context)}; all others
// wait for one that has `first`, if it is seen at once. `context`
// has `view` (view.js), `about` (what is open), and `live` (live.js). `mount` builds what stays, and returns a function
// of an AbortSignal that fills it; it is called whenever the view or the frame is another one while the panel is seen.

import { about as askAbout, login } from "./ask.js";
import { clean, el, put, say } from "./dom.js";
import { Held } from "./held.js";
import { Live } from "./live.js";
import compare from "./panels/compare.js";
import cpu from "./panels/cpu.js";
import drops from "./panels/drops.js";
import exports from "./panels/export.js";
import heat from "./panels/heat.js";
import hops from "./panels/hops.js";
import { LIVE } from "./panels/live.js";
import messages from "./panels/messages.js";
import requests from "./panels/requests.js";
import { interrupts, network, others } from "./panels/simple.js";
import sql from "./panels/sql.js";
import summary from "./panels/summary.js";
import tcp from "./panels/tcp.js";
import timeline from "./panels/timeline.js";
import { selectionForm } from "./selection.js";
import { View } from "./view.js";

const PANELS = [summary, heat, timeline, hops, messages, requests, drops, tcp, cpu, interrupts, network, others, compare, sql, exports, ...LIVE];
const THEMES = ["auto", "light", "dark"];
const byId = (id) => document.getElementById(id);

/** Whoever waits may go on when the first panel has been filled, or is not seen. */
class Turn {
  constructor() {
    this.passed = new Promise((resolve) => { this.pass = resolve; });
  }
}

class Shown {
  constructor(panel, context, turn) {
    this.panel = panel;
    this.turn = turn;
    this.title = el("h2", { id: `title-${panel.id}` }, panel.title);
    this.body = el("div", { class: "body" });
    this.error = el("p", { class: "nothing", hidden: true });
    this.element = el("section", { id: panel.id, "aria-labelledby": `title-${panel.id}`, tabindex: -1 }, this.title, this.error, this.body);
    this.fill = panel.mount(this.body, context);
    this.seen = false;
    this.outdated();
  }

  /** What it shows is of another view: it is filled again when it is seen. */
  outdated() {
    this.stale = true;
    this.element.setAttribute("aria-busy", "true");
    this.refresh();
  }

  async refresh() {
    if (!this.stale || !this.seen) return;
    this.stale = false;
    this.aborted?.abort();
    const mine = new AbortController();
    this.aborted = mine;
    let told = "";
    try {
      if (!this.panel.first) await this.turn.passed;
      mine.signal.throwIfAborted();
      await this.fill(mine.signal);
    } catch (error) {
      if (error.name === "AbortError") return;
      told = error.message;
    } finally {
      if (this.panel.first) this.turn.pass();
    }
    if (this.aborted !== mine) return;
    put(this.error, told);
    this.error.hidden = !told;
    this.body.hidden = Boolean(told);
    this.element.setAttribute("aria-busy", "false");
  }
}

const themeSwitch = (view) => {
  const choice = el("select", { "aria-label": "Colours", onchange: () => view.set({ theme: choice.value === "auto" ? undefined : choice.value }, { keep: true }) },
    THEMES.map((name) => el("option", { value: name }, name)));
  return [choice, () => {
    const theme = THEMES.includes(view.get("theme")) ? view.get("theme") : "auto";
    choice.value = theme;
    document.documentElement.dataset.theme = theme;
  }];
};

const goTo = (id, view) => {
  byId(id)?.scrollIntoView({ block: "start" });
  byId(id)?.focus({ preventScroll: true });
  view.set({ panel: id }, { keep: true });
};

const contents = (shown, view) => put(byId("contents"), el("ol", {}, shown.map((each) =>
  el("li", {}, el("a", { href: `#${each.panel.id}`, onclick: (event) => { event.preventDefault(); goTo(each.panel.id, view); } }, each.panel.title)))));

const subject = (found, where) => {
  const { recording } = found;
  if (where === "live" || !recording) return "this host, now";
  const started = new Date(Number(BigInt(recording.started_ns) / 1_000_000n)).toISOString().replace("T", " ").slice(0, 19);
  const lost = recording.lost ? ` · ${recording.lost.toLocaleString("en")} events lost` : "";
  return `${recording.name} · ${recording.hosts.join(", ")} · ${started} UTC${lost}`;
};

class Page {
  constructor(found) {
    this.found = found;
    this.view = new View();
    this.live = found.live ? new Live() : null;
    this.eyes = new IntersectionObserver((entries) => this.look(entries), { rootMargin: "300px" });
    this.held = new Held(byId("main"));
    const [choice, theme] = themeSwitch(this.view);
    this.theme = theme;
    this.pause = el("button", { type: "button", onclick: () => this.toggle() }, "Pause");
    put(byId("tools"), this.pause, choice);
    this.selected = found.recording ? selectionForm(byId("selection"), this.view) : null;
    this.view.addEventListener("change", () => this.changed());
    this.live?.addEventListener("frame", () => this.where === "live" && this.shown.forEach((each) => each.outdated()));
    document.addEventListener("keydown", (event) => this.key(event));
    byId("main").addEventListener("click", (event) => {
      const link = event.target.closest("[data-panel]");
      if (!link) return;
      event.preventDefault();
      goTo(link.dataset.panel, this.view);
    });
    byId("skip").addEventListener("click", (event) => { event.preventDefault(); byId("main").focus(); });
    this.shown = [];
    this.changed();
    this.toPanel();
    window.addEventListener("hashchange", () => this.toPanel());
  }

  /** Go where the address says. */
  toPanel() {
    if (this.view.get("panel")) byId(this.view.get("panel"))?.scrollIntoView({ behavior: "instant" });
  }

  /** Fill what has come into sight. */
  look(entries) {
    for (const entry of entries) {
      const each = this.shown.find((one) => one.element === entry.target);
      if (!each) continue;
      each.seen = entry.isIntersecting;
      each.refresh();
    }
    if (!this.shown.some((each) => each.panel.first && each.seen)) this.turn.pass();
  }

  toggle() {
    this.live.pause(!this.live.paused);
    put(this.pause, this.live.paused ? "Continue" : "Pause");
  }

  key(event) {
    if (event.target.closest("input, textarea, select, button, canvas, summary") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === " " && this.where === "live") this.toggle();
    else if (event.key === "0" && this.where === "recording") this.view.set({ from: undefined, until: undefined });
    else if (event.key === "n" || event.key === "p") this.step(event.key === "n" ? 1 : -1);
    else return;
    event.preventDefault();
  }

  step(by) {
    const tops = this.shown.map((each) => each.element.getBoundingClientRect().top);
    const current = tops.filter((top) => top < 80).length - 1;
    const next = this.shown[Math.min(Math.max(current + by, 0), this.shown.length - 1)];
    goTo(next.panel.id, this.view);
  }

  /** Which of live and recording is shown: the address may say, where there are both. */
  chosen() {
    if (!this.found.recording) return "live";
    return this.live && this.view.get("show") === "live" ? "live" : "recording";
  }

  changed() {
    this.theme();
    this.selected?.();
    if (this.where !== this.chosen()) this.build(this.chosen());
    if (this.where !== "recording") return;
    const now = JSON.stringify([...new URLSearchParams(this.view.link().split("#")[1])].filter(([name]) => !["panel", "theme"].includes(name) && !name.startsWith("timeline-")));
    const colours = this.view.get("theme");
    if (now === this.before && colours === this.colours) return;
    [this.before, this.colours] = [now, colours];
    this.shown.forEach((each) => each.outdated());
  }

  build(where) {
    this.where = where;
    this.eyes.disconnect();
    this.turn = new Turn();
    const context = { view: this.view, about: this.found, live: this.live };
    this.shown = PANELS.filter((panel) => panel.where === where && (panel.when?.(this.found) ?? true)).map((panel) => new Shown(panel, context, this.turn));
    put(byId("main"), ...this.shown.map((each) => each.element));
    this.shown.forEach((each) => this.eyes.observe(each.element));
    this.held.watch(this.shown.map((each) => each.element));
    contents(this.shown, this.view);
    put(byId("subject"), subject(this.found, where));
    byId("selection").hidden = where === "live";
    this.pause.hidden = where !== "live";
    const tab = (name, title) => el("button", { type: "button", "aria-pressed": String(where === name), onclick: () => this.view.set({ show: name }) }, title);
    put(byId("tabs"), ...(this.live && this.found.recording ? [tab("recording", "Recording"), tab("live", "This host, now")] : []));
  }
}

const start = async () => {
  try {
    await login();
    const found = await askAbout();
    document.title = clean(found.recording ? `${found.recording.name} – hopscope` : "hopscope");
    new Page(found);
    if (found.recording?.warnings.length) say(found.recording.warnings.join(" "));
  } catch (error) {
    put(byId("main"), el("p", { class: "error", role: "alert" }, error.message));
  }
};

start();
