"use strict";
// Zoom, search and the line that tells about the frame under the pointer. Positions are counted in samples: data-x is
// where a frame begins, data-n how wide it is.
(() => {
  const svg = document.documentElement;
  const byId = (id) => document.getElementById(id);
  const [left, width, charWidth, thinPixels] = ["left", "width", "char", "thin"].map((name) => Number(svg.dataset[name]));
  const frames = [...document.querySelectorAll(".frame")].map((element) => ({
    element,
    rect: element.querySelector("rect"),
    text: element.querySelector("text"),
    title: element.querySelector("title").textContent,
    name: element.querySelector("title").textContent.split("\n")[0],
    x: Number(element.dataset.x),
    n: Number(element.dataset.n),
    level: Number(element.dataset.level),
  }));
  const root = frames[0];
  const detail = byId("detail");
  const matched = byId("matched");
  let zoomed = root;
  let pattern = null;

  const percent = (part, whole) => `${((100 * part) / whole).toFixed(1)}%`;

  const label = (frame, pixels) => {
    const room = Math.floor((pixels - 6) / charWidth);
    const cut = frame.name.length <= room ? frame.name : `${frame.name.slice(0, room - 1)}…`;
    if (room < 3 && !frame.text) return;
    if (!frame.text) {
      frame.text = document.createElementNS(svg.namespaceURI, "text");
      frame.text.setAttribute("y", Number(frame.rect.getAttribute("y")) + 12);
      frame.element.append(frame.text);
    }
    frame.text.textContent = room < 3 ? "" : cut;
    frame.text.setAttribute("x", Number(frame.rect.getAttribute("x")) + 3);
  };

  const zoom = (to) => {
    zoomed = to;
    const scale = width / to.n;
    for (const frame of frames) {
      const above = frame.level < to.level && frame.x <= to.x && frame.x + frame.n >= to.x + to.n;
      const inside = frame.level >= to.level && frame.x >= to.x && frame.x + frame.n <= to.x + to.n;
      frame.element.classList.toggle("above", above);
      frame.element.classList.toggle("hidden", !above && !inside);
      if (!above && !inside) continue;
      const pixels = above ? width : frame.n * scale;
      frame.rect.setAttribute("x", above ? left : left + (frame.x - to.x) * scale);
      frame.rect.setAttribute("width", pixels);
      frame.element.classList.toggle("thin", pixels < thinPixels);
      label(frame, pixels);
    }
    byId("reset").classList.toggle("hidden", to === root);
    count();
  };

  // Samples in frames that match, each once, however many of its frames match.
  const count = () => {
    let samples = 0;
    let end = zoomed.x;
    const hits = frames.filter((frame) => frame.element.classList.contains("hit")).sort((a, b) => a.x - b.x || b.n - a.n);
    for (const hit of hits) {
      const from = Math.max(hit.x, end);
      const to = Math.min(hit.x + hit.n, zoomed.x + zoomed.n);
      if (to > from) {
        samples += to - from;
        end = to;
      }
    }
    matched.textContent = pattern ? `matched ${percent(samples, zoomed.n)}` : "";
  };

  const search = (words) => {
    try {
      pattern = words ? new RegExp(words, "i") : null;
    } catch {
      pattern = new RegExp(words.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "i"); // not a pattern yet: as it stands
    }
    for (const frame of frames) frame.element.classList.toggle("hit", Boolean(pattern && pattern.test(frame.name)));
    count();
  };

  const choose = (key) => {
    const chosen = key.classList.contains("chosen") ? null : key;
    for (const each of document.querySelectorAll(".key")) each.classList.toggle("chosen", each === chosen);
    for (const frame of frames) {
      frame.element.classList.toggle("dim", Boolean(chosen) && frame.element.dataset.category !== key.dataset.category);
    }
  };

  // By script, so that what shows SVG but runs none sees no box that does nothing.
  const box = document.createElementNS(svg.namespaceURI, "foreignObject");
  const input = document.createElementNS("http://www.w3.org/1999/xhtml", "input");
  for (const [name, value] of Object.entries({ x: left + width - 240, y: 12, width: 240, height: 28 })) {
    box.setAttribute(name, value);
  }
  input.setAttribute("type", "search");
  input.setAttribute("id", "search");
  input.setAttribute("placeholder", "search (regular expression)");
  // Not as an attribute, which a page's policy may forbid.
  input.style.cssText = "box-sizing: border-box; width: 100%; height: 100%; font: 13px sans-serif;";
  box.append(input);
  svg.append(box);

  input.addEventListener("input", () => search(input.value));
  byId("reset").addEventListener("click", () => zoom(root));
  for (const key of document.querySelectorAll(".key")) key.addEventListener("click", () => choose(key));
  for (const frame of frames) {
    frame.element.addEventListener("click", () => zoom(frame));
    frame.element.addEventListener("mouseenter", () => { detail.textContent = frame.title.replaceAll("\n", "  ·  "); });
    frame.element.addEventListener("mouseleave", () => { detail.textContent = ""; });
  }
  window.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "f" && document.activeElement !== input) {
      event.preventDefault();
      input.focus();
    } else if (event.key === "Escape") {
      input.value = "";
      search("");
      zoom(root);
    }
  });

  // In a frame, its height depends on the frame's width; a bar to scroll by has room, too.
  const sized = () => window.parent.postMessage(svg.getBoundingClientRect().height + 16, "*");
  if (window.parent !== window) {
    sized();
    window.addEventListener("resize", sized);
  }
})();
