// A report as a table: columns with units and meanings, rows that can be sorted and chosen, and what is missing.

import { copyButton, el, put } from "./dom.js";
import { cell, count } from "./format.js";

const isText = (unit) => unit === "text" || unit === "id";

const compare = (a, b) => {
  if (a === null || b === null) return (a === null) - (b === null);
  return typeof a === "string" || typeof b === "string" ? String(a).localeCompare(String(b)) : a - b;
};

const shown = (report) =>
  report.columns.filter((column) => column.rank < 9 && report.rows.some((row) => row[column.name] !== null));

const heading = (column, state, draw) => {
  const sorted = state.by === column.name ? (state.down ? "descending" : "ascending") : "none";
  const sort = () => {
    state.down = state.by === column.name ? !state.down : !isText(column.unit);
    state.by = column.name;
    draw();
  };
  return el(
    "th",
    { scope: "col", class: `r${column.rank} ${isText(column.unit) ? "" : "figure"}`, "aria-sort": sorted },
    el("button", { type: "button", title: column.meaning || column.name, onclick: sort }, column.title),
  );
};

const body = (report, columns, state, choose) => {
  const rows = [...report.rows];
  if (state.by) rows.sort((a, b) => compare(a[state.by], b[state.by]) * (state.down ? -1 : 1));
  return rows.map((row) => {
    const open = choose && ((event) => {
      if (event.type === "keydown" && event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      choose(row);
    });
    const cells = columns.map((column) => {
      const text = cell(row[column.name], column.unit);
      const attributes = { class: `r${column.rank} ${isText(column.unit) ? "text" : "figure"}`, "data-value": JSON.stringify(row[column.name]) };
      return el("td", attributes, column.unit === "text" ? el("bdi", {}, text) : text);
    });
    const attributes = choose ? { tabindex: 0, class: "choosable", onclick: open, onkeydown: open } : {};
    return el("tr", attributes, cells);
  });
};

/**
 * Show a report.
 *
 * `options.caption` names it for screen readers; `options.choose(row)` is called for the row that a user chooses;
 * `options.columns` are the names of the columns to show, in order.
 */
export const table = (report, { caption, choose = null, columns: wanted = null } = {}) => {
  const columns = wanted
    ? wanted.map((name) => report.columns.find((column) => column.name === name)).filter(Boolean)
    : shown(report);
  const state = { by: null, down: false };
  const grid = el("table");
  const draw = () => {
    put(grid, 
      el("caption", {}, caption ?? report.name),
      el("thead", {}, el("tr", {}, columns.map((column) => heading(column, state, draw)))),
      el("tbody", {}, body(report, columns, state, choose)),
    );
  };
  draw();
  const box = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption ?? report.name }, grid);
  return el(
    "div",
    { class: "report" },
    report.heading.map((line) => el("p", { class: "heading" }, line)),
    report.rows.length ? box : el("p", { class: "nothing" }, "Nothing of this kind in the selected part."),
    notes(report),
  );
};

/** What is missing from a report, and the command that prints it. */
export const notes = (report) => {
  const left = report.left_out ? [`${count(report.left_out)} more rows: \`--limit\` of the command shows them.`] : [];
  return el(
    "footer",
    { class: "notes" },
    [...report.notes, ...left].map((note) => el("p", {}, note)),
    report.command ? copyButton(report.command) : null,
  );
};
