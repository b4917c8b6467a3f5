// What somebody is about to click stays where it is while panels above it are filled: the section with the pointer or the
// focus. A browser does so by itself only for what is scrolled out of sight.

export class Held {
  constructor(main) {
    this.section = null;
    this.top = 0;
    for (const kind of ["pointermove", "pointerdown", "focusin"]) {
      main.addEventListener(kind, (event) => this.#hold(event.target.closest("section")));
    }
    document.addEventListener("scroll", () => this.#hold(this.section));
    this.observer = new ResizeObserver(() => this.#keep());
  }

  /** Look at these sections, and at no others. */
  watch(sections) {
    this.section = null;
    this.observer.disconnect();
    sections.forEach((each) => this.observer.observe(each));
  }

  #hold(section) {
    this.section = section;
    this.top = section?.getBoundingClientRect().top ?? 0;
  }

  #keep() {
    if (!this.section) return;
    const moved = this.section.getBoundingClientRect().top - this.top;
    if (moved) window.scrollBy({ top: moved, behavior: "instant" });
  }
}
