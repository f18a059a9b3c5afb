// Ticks of an axis with their texts: numbers, log, categories and moments.

import { short, timeUnit } from "./numbers.js";
import { padded, ticks } from "./scales.js";

const STEPS_S = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 2592000, 7776000, 31536000,
];
const WIDTH_PX = 6.7;
const LONGEST = 18;

/** About `count` local round times between two moments (seconds since 1970): [{value, text}]. */
export function timeTicks([low, high], count) {
  const step = STEPS_S.find((one) => (high - low) / one <= count) ?? STEPS_S.at(-1);
  const offset = new Date(low * 1000).getTimezoneOffset() * 60;
  const found = [];
  for (let at = Math.ceil((low - offset) / step) * step + offset; at <= high; at += step)
    found.push({ value: at, text: clock(at, step, high - low) });
  return found;
}

function clock(at, step, span) {
  const local = new Date(at * 1000);
  const two = (part) => String(part).padStart(2, "0");
  const day = `${two(local.getMonth() + 1)}-${two(local.getDate())}`;
  if (step >= 86400) return span > 300 * 86400 ? `${local.getFullYear()}-${day}` : day;
  const time = `${two(local.getHours())}:${two(local.getMinutes())}`;
  if (span > 86400) return `${day} ${time}`;
  return step < 60 ? `${time}:${two(local.getSeconds())}` : time;
}

export const cut = (text, most = LONGEST) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/**
 * An axis ready to draw. `axis` has `kind` ("number", "category", "time"), `range`, `log`, `categories`, `title`, and
 * `every` (label each so many categories), `whole` (only whole numbers are values).
 * Returns `{range, log, ticks: [{value, text}], title, textWidth}`; `exact` keeps the range without a margin.
 */
export function prepared(axis, count, exact = false) {
  const { kind, log = false, title = "" } = axis;
  if (kind === "category") {
    const range = axis.zoom ?? [-0.5, axis.categories.length - 0.5];
    const every = axis.every ?? Math.max(Math.ceil(axis.categories.length / Math.max(count * 2, 1)), 1);
    const marks = axis.categories.map((text, value) => ({ value, text: cut(text) })).filter(({ value }) => value % every === 0);
    return finished({ range, log: false, ticks: marks, title });
  }
  const base = axis.range ?? (log ? [1, 10] : [0, 1]);
  const range = axis.zoom ?? (exact && base[0] < base[1] ? base : padded(base, log));
  const marks = kind === "time" ? timeTicks(range, count) : numbered(range, log, count, axis.whole).map((value) => ({ value, text: short(value) }));
  return finished({ range, log, ticks: marks, title });
}

/** Ticks of numbers; `whole`: there is nothing between whole ones, such as iterations. */
function numbered(range, log, count, whole = false) {
  const found = ticks(range, log, count);
  const kept = whole ? found.filter(Number.isInteger) : found;
  return kept.length > 0 ? kept : found;
}

const finished = (axis) => ({
  ...axis,
  textWidth: Math.ceil(Math.max(0, ...axis.ticks.map(({ text }) => text.length)) * WIDTH_PX),
});

/** Seconds in a unit that reads well: `{values: scale(seconds), title: "training time (min)"}`. */
export function inUnit(title, longest) {
  const { name, seconds } = timeUnit(longest);
  return { title: `${title} (${name})`, scale: (value) => value / seconds, seconds };
}
