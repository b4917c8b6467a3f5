// One stream of frames for all panels of this host.

import { say } from "./dom.js";

const KEPT = 120;

export class Live extends EventTarget {
  frames = [];
  paused = false;
  upper = [];
  cpu = null;
  #waiting = [];

  constructor() {
    super();
    const source = new EventSource("/api/events");
    source.addEventListener("message", (event) => this.#take(JSON.parse(event.data)));
    source.addEventListener("open", () => this.#restart());
    source.addEventListener("error", () => say("The connection to `hopscope web` is interrupted; trying again."));
  }

  get last() {
    return this.frames.at(-1);
  }

  pause(paused) {
    this.paused = paused;
    if (!paused) this.#waiting.splice(0).forEach((frame) => this.#add(frame));
    this.dispatchEvent(new Event("frame"));
  }

  #restart() {
    this.frames = []; // the server sends those that it has again
    this.#waiting = [];
    this.cpu = null;
    say("");
    this.dispatchEvent(new Event("restart"));
  }

  #take(message) {
    if (message.kind === "error") say(message.error);
    else if (message.kind === "said") say(message.sentence);
    else if (message.kind === "cpu") this.cpu = message;
    else if (message.kind === "restart") this.#restart();
    else if (message.kind === "ready") this.interval = message.interval_s;
    else if (message.kind === "frame" && this.paused) this.#waiting = [...this.#waiting, message].slice(-KEPT);
    else if (message.kind === "frame") {
      this.#add(message);
      this.dispatchEvent(new Event("frame"));
    }
  }

  #add(frame) {
    this.frames = [...this.frames, frame].slice(-KEPT);
  }
}
