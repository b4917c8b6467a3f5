// A flame graph of the selected part, in a frame of its own: whatever a name in it did, it could not reach the page.

import { el } from "./dom.js";

const LOWEST = 80;
const HIGHEST = 1_000;

export const flameGraph = (of, view, title) => {
  const options = encodeURIComponent(JSON.stringify(view.selection()));
  return el("iframe", { src: `/api/flame.svg?of=${of}&options=${options}`, title });
};

// It says how high it is, and nothing else is listened to.
window.addEventListener("message", ({ source, data }) => {
  const frame = [...document.querySelectorAll("iframe")].find((each) => each.contentWindow === source);
  if (frame && Number.isFinite(data)) frame.style.height = `${Math.min(Math.max(data, LOWEST), HIGHEST)}px`;
});
