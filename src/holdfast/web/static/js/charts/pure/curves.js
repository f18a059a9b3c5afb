// Learning curves as they are drawn: from rows to points.

import { halfLifeOf, smoothed } from "./smooth.js";
import { lowerBound, thinned } from "./thin.js";
import { isFinite } from "./numbers.js";
import { extent } from "./scales.js";

const MOST_POINTS = 120_000;

/** A trial's x values: "iteration", "time" (training time) or "clock". */
const COLUMN = { iteration: "iteration", time: "time_total_s", clock: "timestamp" };

/**
 * One curve for each id that has rows: `{id, xs, ys, raw, places, marks, rows}`. `ys` is smoothed (`smooth` is 0 to 100), `raw` is not,
 * and `places` says which of the trial's `rows` a point is.
 * Values that a log axis cannot show are missing; `marks` are the points at which an attempt continued the trial.
 */
export function curves(ids, rowsOf, { axis, smooth, logX, logY }) {
  const found = [];
  for (const id of ids) {
    const rows = rowsOf(id);
    if (rows === undefined || rows.iteration.length === 0) continue;
    found.push({ id, ...cleaned(rows, rows[COLUMN[axis]], logX, logY), rows });
  }
  const span = spanOf(found);
  for (const curve of found) {
    curve.ys = smoothed(curve.xs, curve.raw, halfLifeOf(smooth, span));
    curve.marks = marks(curve);
  }
  return found;
}

function cleaned(rows, from, logX, logY) {
  const [xs, raw, places] = [[], [], []];
  let dropped = 0;
  rows.values.forEach((value, at) => {
    const x = from[at];
    if (!isFinite(x) || (logX && x <= 0)) return;
    const isShown = isFinite(value) && (!logY || value > 0);
    if (isFinite(value) && !isShown) dropped += 1;
    if (value === null) return;
    xs.push(x);
    raw.push(isShown ? value : null);
    places.push(at);
  });
  return { xs, raw, places, dropped };
}

function spanOf(found) {
  let [low, high] = [Infinity, -Infinity];
  for (const { xs } of found) {
    if (xs.length === 0) continue;
    low = Math.min(low, xs[0]);
    high = Math.max(high, xs.at(-1));
  }
  return high > low ? high - low : 0;
}

function marks({ rows, xs, ys, places }) {
  return rows.starts.flatMap(({ iteration, at }) => {
    const place = Math.min(lowerBound(places, lowerBound(rows.iteration, iteration)), xs.length - 1);
    return place >= 0 && isFinite(ys[place]) ? [{ x: xs[place], y: ys[place], iteration, at }] : [];
  });
}

/** The range of x and y of curves, y only where x is inside of `zoom` (null: everywhere). */
export function ranges(found, zoom, logs) {
  const x = zoom?.x ?? merged(found.map(({ xs }) => extent(xs, logs.x)));
  if (zoom?.y) return { x, y: zoom.y };
  const seen = found.map(({ xs, ys }) => {
    if (!zoom?.x) return extent(ys, logs.y);
    return extent(ys.slice(lowerBound(xs, zoom.x[0]), lowerBound(xs, zoom.x[1]) + 1), logs.y);
  });
  return { x, y: merged(seen) };
}

function merged(all) {
  const some = all.filter((range) => range !== null);
  return some.length === 0 ? null : [Math.min(...some.map(([low]) => low)), Math.max(...some.map(([, high]) => high))];
}

/** The points to draw of each of `count` curves in a plot that is `width` pixels wide. */
export const pointsEach = (count, width) => Math.round(Math.min(Math.max(MOST_POINTS / Math.max(count, 1), 60), Math.max(width * 1.5, 200)));

/** The points of one curve, as few as look the same. */
export function pointsOf(xs, ys, most, range) {
  return thinned(xs, ys, most, range[0], range[1]);
}
