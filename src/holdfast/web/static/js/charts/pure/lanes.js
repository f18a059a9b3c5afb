// The axes of parallel coordinates: side by side, or one below the other in a narrow picture.

import { isFinite, short } from "./numbers.js";
import { placeOn } from "./dimensions.js";
import { axisMap } from "./scales.js";
import { jitter } from "./rungs.js";
import { prepared } from "./ticks.js";

const EDGE = 42;
const MISSING = "–";
const GAP_PX = 16;
const SPREAD = 0.5;
const FEW = 8;

/**
 * One axis for each of `dims`: `{dim, at, from, to, missing, ticks: [{text, px}], value(px), toPixel(value), pixel(value, trial)}`. `at` is
 * its place across the picture; its low end is at the pixel `from` and its high end at `to`; `missing` is where lines of
 * trials without a value pass (null: each has one). `isFlipped(dim)` says whose lowest value is the best.
 */
export function parallelAxes(dims, size, isNarrow, isFlipped = () => false) {
  const across = isNarrow ? size.height : size.width;
  const [first, last] = isNarrow ? [40, across - 26] : [EDGE + 10, across - EDGE - 26];
  return dims.map((dim, index) => {
    const at = dims.length === 1 ? first : first + ((last - first) * index) / (dims.length - 1);
    const ends = isNarrow ? [18, size.width - 24] : [size.height - 14, 50];
    return { dim, at, ...along(dim, ends, isNarrow, isFlipped(dim)) };
  });
}

function along(dim, [low, high], isNarrow, flipped) {
  const toHigh = Math.sign(high - low);
  const hasMissing = dim.values.some((value) => placeOn(dim, value) === null);
  const missing = hasMissing ? low : null;
  const start = hasMissing ? low + toHigh * GAP_PX : low;
  const [from, to] = flipped ? [high, start] : [start, high];
  const ready = prepared(dim, isNarrow ? 4 : 6);
  const map = axisMap(ready.range, [from, to], ready.log);
  const ticks = (ownTicks(dim, map, isNarrow ? 40 : 14) ?? ready.ticks).map(({ value, text }) => ({ text, px: map.pixel(value) }));
  if (hasMissing) ticks.push({ text: MISSING, px: missing });
  return {
    from,
    to,
    missing,
    ticks,
    value: map.value,
    toPixel: map.pixel,
    // Lines of one category are spread a little, so that their number is seen.
    pixel(value, trial) {
      const place = placeOn(dim, value);
      if (place === null) return missing;
      return map.pixel(dim.kind === "category" ? place + jitter(trial) * SPREAD : place);
    },
  };
}

/** The values themselves as ticks, where they are few and `gap` pixels apart; else null. */
function ownTicks({ kind, values }, map, gap) {
  if (kind !== "number") return null;
  const distinct = new Set();
  for (const value of values) {
    if (isFinite(value)) distinct.add(value);
    if (distinct.size > FEW) return null;
  }
  const pixels = [...distinct].map(map.pixel).sort((a, b) => a - b);
  if (pixels.some((px, at) => Number.isNaN(px) || (at > 0 && px - pixels[at - 1] < gap))) return null;
  return [...distinct].map((value) => ({ value, text: short(value) }));
}

/** The line of a trial, in pixels: [[x, y], ...]. */
export const lineOf = (axes, trial, isNarrow) =>
  axes.map(({ dim, at, pixel }) => {
    const along = pixel(dim.values[trial], trial);
    return isNarrow ? [along, at] : [at, along];
  });
