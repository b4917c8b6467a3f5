// What a pointer and keys do to the timeline: zoom, move, markers, and what is at a place.

const NEAR = 5;

export class Input {
  constructor(timeline) {
    this.timeline = timeline;
    this.#listen();
  }

  /** What is drawn at a place, marks before intervals, short ones before long ones. */
  #at({ x, y }) {
    const { timeline } = this;
    const near = timeline.painter.hits.filter((hit) => {
      const top = timeline.y(hit.place[0]);
      return y >= top && y < top + hit.place[0].tall && x >= hit.from - NEAR && x <= hit.until + NEAR;
    });
    const off = (hit) => Math.max(hit.from - x, x - hit.until, 0) + (hit.mark ? -2 : 0);
    const inside = (hit) => (hit.place[0].kind === "messages" && (y < hit.place[1] || y > hit.place[1] + hit.place[2]) ? 1e3 : 0);
    return near.sort((a, b) => inside(a) + off(a) - inside(b) - off(b) || a.until - a.from - (b.until - b.from))[0] ?? null;
  }

  #point(event) {
    const { timeline } = this;
    const box = timeline.canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  #listen() {
    const { timeline } = this;
    const { canvas } = timeline;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      canvas.setPointerCapture(event.pointerId);
      timeline.pointer = this.#point(event);
      timeline.drag = { ...timeline.pointer, moved: false };
    });
    canvas.addEventListener("pointermove", (event) => {
      timeline.pointer = this.#point(event);
      if (timeline.drag && Math.abs(timeline.pointer.x - timeline.drag.x) > 4) timeline.drag.moved = true;
      if (timeline.drag) timeline.draw();
      else timeline.told(this.#at(timeline.pointer), timeline.ns(timeline.pointer.x));
    });
    canvas.addEventListener("pointerup", (event) => this.#released(event));
    canvas.addEventListener("pointercancel", () => { timeline.drag = null; timeline.draw(); });
    canvas.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    canvas.addEventListener("keydown", (event) => this.#key(event));
  }

  #released(event) {
    const { timeline } = this;
    const { drag } = timeline;
    timeline.drag = null;
    if (!drag) return;
    timeline.pointer = this.#point(event);
    const ends = [drag.x, timeline.pointer.x].sort((a, b) => a - b).map((x) => timeline.ns(Math.max(x, timeline.left)));
    if (drag.moved) {
      timeline.look(...ends);
      return;
    }
    const hit = this.#at(timeline.pointer);
    if (timeline.pointer.x < timeline.left) return;
    timeline.told(hit, timeline.ns(timeline.pointer.x), true);
    const begin = hit?.begin >= timeline.view[0] ? hit.begin : timeline.ns(timeline.pointer.x);
    timeline.mark(event.shiftKey ? "b" : "a", begin);
  }

  #wheel(event) {
    const { timeline } = this;
    if (document.activeElement !== timeline.canvas && !event.ctrlKey) return;
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) timeline.pan(Math.sign(event.deltaX || event.deltaY) * 0.1);
    else timeline.zoom(event.deltaY > 0 ? 1.25 : 0.8, timeline.ns(this.#point(event).x));
    event.preventDefault();
  }

  #key(event) {
    const { timeline } = this;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const here = timeline.pointer && timeline.pointer.x >= timeline.left ? timeline.ns(timeline.pointer.x) : (timeline.view[0] + timeline.view[1]) / 2;
    const does = {
      ArrowLeft: () => timeline.pan(-0.2), ArrowRight: () => timeline.pan(0.2),
      ArrowUp: () => { timeline.element.scrollTop -= 40; }, ArrowDown: () => { timeline.element.scrollTop += 40; },
      "+": () => timeline.zoom(0.5, here), "=": () => timeline.zoom(0.5, here), "-": () => timeline.zoom(2, here),
      Home: () => timeline.whole(),
      a: () => timeline.mark("a", here), b: () => timeline.mark("b", here),
      Escape: () => { timeline.mark("a", null); timeline.mark("b", null); },
    }[event.key];
    if (!does) return;
    does();
    event.preventDefault();
  }
}
