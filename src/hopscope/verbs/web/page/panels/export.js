// The selected part in the formats of other tools.

import { download } from "../ask.js";
import { copyButton, el, put, say } from "../dom.js";

const MEANINGS = {
  perfetto: "timeline for ui.perfetto.dev: CPUs, threads, messages, counters, losses",
  ctf: "every event, for babeltrace2 and Trace Compass: a folder, which is downloaded as an archive",
  chrome: "the timeline as Chrome's trace events, for small parts",
  speedscope: "CPUs and threads over time, and stacks, for speedscope.app",
  folded: "kernel stacks of drops, as the FlameGraph scripts read them",
  csv: "every event as a row",
  parquet: "every event as a row",
  jsonl: "every event as a row",
};

const word = (text) => (/^[\w./:@%+=,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\"'\"'")}'`);

const command = (form, view, folder) => {
  const words = Object.entries(view.selection()).flatMap(([name, value]) =>
    (Array.isArray(value) ? value : [value]).map((each) => word(`--${name}=${each}`)));
  return ["hopscope export", form, ...words, word(folder), "-o", `hopscope.${form}`].join(" ");
};

export default {
  id: "export",
  title: "Downloads",
  where: "recording",
  mount(container, { view, about }) {
    const { files, folder } = about.recording;
    const get = async (form, button) => {
      button.disabled = true;
      say(`Writing ${form} …`);
      try {
        const notes = await download(form, files[form], view.selection());
        say(["Downloaded.", ...notes].join(" "));
      } catch (error) {
        say(error.message);
      }
      button.disabled = false;
    };
    const grid = el("tbody");
    container.append(el("div", { class: "scroll" }, el("table", {}, el("caption", {}, "Formats of the selected part"), grid)));
    return async () => {
      put(grid, ...Object.keys(files).map((form) => {
        const button = el("button", { type: "button", onclick: () => get(form, button) }, "Download");
        return el("tr", {}, el("th", { scope: "row" }, form), el("td", {}, MEANINGS[form] ?? ""),
          el("td", { class: "controls" }, button, " ", copyButton(command(form, view, folder))));
      }));
    };
  },
};
