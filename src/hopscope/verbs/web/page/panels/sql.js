// A query over the recording: what `hopscope sql` takes, and nothing else.

import { ask } from "../ask.js";
import { el, put } from "../dom.js";
import { table } from "../table.js";

export default {
  id: "sql",
  title: "SQL",
  where: "recording",
  mount(container, { view }) {
    const text = el("textarea", { rows: 4, spellcheck: "false", "aria-label": "Query in SQL", placeholder: "SELECT point, count(*) FROM packets GROUP BY point" });
    const [place, listed] = [el("div", { "aria-live": "polite" }), el("div")];
    const show = async (question, where, options) => {
      try {
        put(where, table(await ask(question), options));
      } catch (error) {
        put(where, el("p", { class: "error" }, error.message));
      }
    };
    const run = async () => {
      put(place, el("p", { class: "status" }, "Running …"));
      await show({ ask: "sql", query: text.value }, place, { caption: "Result of the query" });
    };
    text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) view.set({ sql: text.value });
    });
    const choose = (row) => {
      text.value = `SELECT * FROM ${row.name} LIMIT 20`;
      text.focus();
    };
    const tables = el("details", { ontoggle: () => tables.open && !listed.children.length
      && show({ ask: "tables" }, listed, { caption: "What a query can name; choose one to query it", choose }) },
    el("summary", {}, "Tables and relations"), listed);
    container.append(text, el("p", { class: "controls" },
      el("button", { type: "button", onclick: () => view.set({ sql: text.value }) }, "Run (Ctrl-Enter)")), place, tables);
    let last = "";
    return async () => {
      const query = view.get("sql") ?? "";
      if (!query || query === last) return;
      last = query;
      text.value = query;
      await run();
    };
  },
};
