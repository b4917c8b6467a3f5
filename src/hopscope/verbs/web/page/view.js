// What is looked at. The address has all of it, so that a link shows somebody else the same; the token never stays there.

const LISTS = ["flow", "port", "address", "process", "interface", "netns"];
const NUMBERS = ["from", "until", "second-from", "second-until"];
// What else panels keep there, by their names: which message is open, which table is grouped by what.
const EXACT = /^-?\d+(\.\d+)?$/;

const parsed = (fragment) => {
  const found = {};
  for (const [name, value] of new URLSearchParams(fragment.replace(/^#/, ""))) {
    if (name === "token" || value === "") continue;
    if (LISTS.includes(name)) (found[name] ??= []).push(value);
    else if (!NUMBERS.includes(name)) found[name] = value;
    else if (EXACT.test(value)) found[name] = Number(value);
  }
  return found;
};

export class View extends EventTarget {
  #state = parsed(location.hash);

  constructor() {
    super();
    window.addEventListener("hashchange", () => {
      this.#state = parsed(location.hash);
      this.dispatchEvent(new Event("change"));
    });
  }

  /** One value, or undefined. */
  get(name) {
    return this.#state[name];
  }

  /** Set some values; undefined or an empty list removes one. `keep`: without an entry in the history. */
  set(values, { keep = false } = {}) {
    for (const [name, value] of Object.entries(values)) {
      const nothing = value === undefined || value === null || value === "" || value.length === 0;
      if (nothing) delete this.#state[name];
      else this.#state[name] = value;
    }
    history[keep ? "replaceState" : "pushState"](null, "", this.link());
    this.dispatchEvent(new Event("change"));
  }

  /** The fragment that brings this view back. */
  link() {
    const words = new URLSearchParams();
    for (const [name, value] of Object.entries(this.#state)) {
      for (const each of Array.isArray(value) ? value : [value]) words.append(name, each);
    }
    return `${location.pathname}#${words}`;
  }

  /** The options of a report that select: traffic, and the period. */
  selection() {
    const names = [...LISTS, "protocol", "from", "until"];
    return Object.fromEntries(names.filter((name) => name in this.#state).map((name) => [name, this.#state[name]]));
  }
}
