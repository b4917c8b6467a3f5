// A flame graph of the selected part, in a frame of its own: whatever a name in it did, it could not reach the page.

import { el } from "./dom.js";

export const flameGraph = (of, view, title) => {
  const options = encodeURIComponent(JSON.stringify(view.selection()));
  return el("iframe", { src: `/api/flame.svg?of=${of}&options=${options}`, title });
};
