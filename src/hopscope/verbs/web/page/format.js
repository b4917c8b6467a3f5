// Figures for people. Nothing is computed here but the unit that a figure is shown in.

const MISSING = "–";

const digits = (value) => (value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2));

/** A duration in ns. */
export const time = (ns) => {
  if (ns === null || ns === undefined) return MISSING;
  const size = Math.abs(ns);
  const sign = ns < 0 ? "-" : "";
  if (size < 1e3) return `${sign}${size.toFixed(size < 10 && size % 1 ? 1 : 0)} ns`;
  if (size < 1e6) return `${sign}${digits(size / 1e3)} µs`;
  if (size < 1e9) return `${sign}${digits(size / 1e6)} ms`;
  return `${sign}${digits(size / 1e9)} s`;
};

/** A time since the start, in s. */
export const at = (seconds) => (seconds === null || seconds === undefined ? MISSING : `${seconds.toFixed(6)} s`);

/** A time since the start in ns, to the nanosecond. */
export const exact = (ns) => `${(ns / 1e9).toFixed(9)} s`;

/** A time since the start, as short as the width of what is shown allows. */
export const tick = (seconds, span) => {
  const places = span > 100 ? 0 : span > 10 ? 1 : span > 1 ? 2 : span > 0.1 ? 3 : 6;
  return `${seconds.toFixed(places)} s`;
};

export const count = (value) => (value === null || value === undefined ? MISSING : value.toLocaleString("en"));

export const bytes = (value) => {
  if (value === null || value === undefined) return MISSING;
  if (value < 1e4) return count(value);
  for (const [size, unit] of [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (value >= size) return `${digits(value / size)} ${unit}`;
  }
  return count(value);
};

const ratio = (value) => (Number.isInteger(value) ? String(value) : value.toPrecision(3));

/** The value of a report's column, by its unit (docs/report.md). */
export const cell = (value, unit) => {
  if (value === null || value === undefined) return MISSING;
  if (typeof value === "string") return value;
  switch (unit) {
    case "ns": return time(value);
    case "at_ns": return at(value / 1e9);
    case "bytes": return bytes(value);
    case "count": return count(value);
    case "per_s": return `${count(Math.round(value * 10) / 10)}/s`;
    case "part": return `${(value * 100).toFixed(1)} %`;
    case "ratio": return ratio(value);
    default: return String(value);
  }
};
