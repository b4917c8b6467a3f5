// The line above the panels: which period and which traffic they show.

import { copy, el, put } from "./dom.js";
import { at } from "./format.js";

const FIELDS = [
  ["flow", "Flow", "A:PORT>B:PORT"],
  ["port", "Port", "443"],
  ["address", "Address", "10.0.0.0/8"],
  ["process", "Process", "name or PID"],
  ["interface", "Interface", "eth0"],
  ["netns", "Namespace", "blue"],
];
const PROTOCOLS = [["", "any"], ["tcp", "TCP"], ["udp", "UDP"]];

const words = (text) => text.split(",").map((each) => each.trim()).filter(Boolean);

export const selectionForm = (form, view) => {
  const inputs = Object.fromEntries(FIELDS.map(([name, , hint]) => [name, el("input", { name, placeholder: hint, size: 12, autocomplete: "off", spellcheck: "false" })]));
  const [from, until] = ["from", "until"].map((name) => el("input", { name, type: "number", step: "any", size: 9, placeholder: "s" }));
  const protocol = el("select", { name: "protocol" }, PROTOCOLS.map(([value, name]) => el("option", { value }, name)));
  const period = el("output", { class: "period" });
  const all = el("button", { type: "button", class: "quiet", onclick: () => view.set({ from: undefined, until: undefined }) }, "Whole recording");
  const everything = el("button", { type: "button", class: "quiet", onclick: () => view.set(Object.fromEntries([...FIELDS.map(([name]) => name), "protocol", "from", "until"].map((name) => [name, undefined]))) }, "Clear");
  const link = el("button", { type: "button", class: "quiet", title: "Who has opened this page with the token sees the same", onclick: () => copy(new URL(view.link(), location.href).href) }, "Copy link");
  const more = el("details", { class: "filters" }, el("summary", {}, "Filter"),
    el("div", { class: "fields" },
      ...[["From", from], ["Until", until]].map(([name, input]) => el("label", {}, name, " ", input)),
      ...FIELDS.map(([name, title]) => el("label", {}, title, " ", inputs[name])),
      el("label", {}, "Protocol ", protocol),
      el("button", { type: "submit" }, "Apply"), everything));
  put(form, el("div", { class: "line" }, period, all, link), more);
  const seconds = (input) => (input.value === "" || !Number.isFinite(input.valueAsNumber) ? undefined : input.valueAsNumber);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const lists = Object.fromEntries(FIELDS.map(([name]) => [name, words(inputs[name].value)]));
    view.set({ ...lists, protocol: protocol.value, from: seconds(from), until: seconds(until) });
  });
  return () => {
    for (const [name] of FIELDS) inputs[name].value = (view.get(name) ?? []).join(", ");
    [[from, "from"], [until, "until"]].forEach(([input, name]) => { input.value = view.get(name) ?? ""; });
    protocol.value = PROTOCOLS.some(([value]) => value === view.get("protocol")) ? view.get("protocol") : "";
    const [begin, end] = [view.get("from"), view.get("until")];
    const chosen = [...FIELDS.map(([name]) => name), "protocol"].filter((name) => view.get(name) !== undefined);
    const narrowed = begin !== undefined || end !== undefined;
    const told = narrowed ? `${begin === undefined ? "Beginning" : at(begin)} to ${end === undefined ? "end" : at(end)}` : "Whole recording";
    put(period, el("bdi", {}, [told, ...chosen.map((name) => `${name} ${[view.get(name)].flat().join(", ")}`)].join(" · ")));
    all.hidden = !narrowed;
  };
};
