// Values over time as lines, in SVG: what is drawn can be read as a table, too.

import { el, svg } from "./dom.js";
import { cell, tick } from "./format.js";

const WIDEST = 720;
const LEFT = 70;
const MARGINS = 56;

/** `x` in s; `series` are {name, unit, values}, with null where there is none; all have one unit. */
export const lines = (title, x, series, { height = 130 } = {}) => {
  const present = series.filter((each) => each.values.some((value) => value !== null && value !== undefined));
  if (!present.length || x.length < 2) return el("p", { class: "nothing" }, `${title}: nothing was recorded.`);
  const most = Math.max(...present.flatMap((each) => each.values.filter((value) => value !== null))) || 1;
  const [first, last] = [x[0], x.at(-1)];
  // On a telephone, texts would be too small if the picture were only scaled.
  const width = Math.min(WIDEST, Math.max(document.documentElement.clientWidth - MARGINS, 240));
  const across = (at) => LEFT + ((at - first) / (last - first || 1)) * (width - LEFT - 8);
  const up = (value) => height - 20 - (value / most) * (height - 30);
  const paths = present.map((each, number) => {
    let pen = "M";
    const points = each.values.map((value, index) => {
      if (value === null || value === undefined) {
        pen = "M";
        return "";
      }
      const point = `${pen}${across(x[index]).toFixed(1)} ${up(value).toFixed(1)}`;
      pen = "L";
      return point;
    });
    return svg("path", { d: points.join(""), class: `line line-${number + 1}` });
  });
  const unit = present[0].unit;
  const picture = svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title} over time`, class: "lines" },
    svg("path", { d: `M${LEFT} 10V${height - 20}H${width - 8}`, class: "axis" }),
    svg("text", { x: LEFT - 6, y: 14, class: "end" }, cell(most, unit)),
    svg("text", { x: LEFT - 6, y: height - 20, class: "end" }, "0"),
    svg("text", { x: LEFT, y: height - 5 }, tick(first, last - first)),
    svg("text", { x: width - 8, y: height - 5, class: "end" }, tick(last, last - first)),
    paths,
  );
  const keys = present.map((each, number) => el("span", { class: `key key-${number + 1}` }, each.name));
  return el("figure", { class: "chart" }, el("figcaption", {}, title, " ", keys), picture);
};
