// The middle of many curves and how far they spread.

import { isFinite } from "./numbers.js";
import { lowerBound } from "./thin.js";

/** At most `count` x values between the curves' ends, evenly spaced (on a log axis if `log`). */
export function grid(curves, count, log = false) {
  let [low, high] = [Infinity, -Infinity];
  for (const { xs } of curves) {
    if (xs.length === 0) continue;
    const start = log ? xs[lowerBound(xs, Number.MIN_VALUE)] : xs[0];
    if (start !== undefined) low = Math.min(low, start);
    high = Math.max(high, xs.at(-1));
  }
  if (!(low <= high)) return [];
  if (low === high) return [low];
  const [from, to] = log ? [Math.log(low), Math.log(high)] : [low, high];
  const points = Array.from({ length: count }, (_, at) => from + ((to - from) * at) / (count - 1));
  const values = log ? points.map(Math.exp) : points;
  values[0] = low;
  values[count - 1] = high;
  return values;
}

/**
 * For each x of `at`: `{x, n, mean, min, max, low, median, high}` of the curves that have reached it, each with its newest
 * value up to there; low and high are the quartiles. A curve counts from its first to its last point.
 */
export function bands(curves, at) {
  return at.map((x) => {
    const values = [];
    for (const { xs, ys } of curves) {
      if (xs.length === 0 || x < xs[0] || x > xs.at(-1)) continue;
      let index = lowerBound(xs, x);
      if (index === xs.length || xs[index] > x) index -= 1;
      while (index >= 0 && !isFinite(ys[index])) index -= 1;
      if (index >= 0) values.push(ys[index]);
    }
    return { x, ...summary(values) };
  });
}

function summary(values) {
  const n = values.length;
  if (n === 0) return { n, mean: null, min: null, max: null, low: null, median: null, high: null };
  values.sort((a, b) => a - b);
  const mean = values.reduce((sum, value) => sum + value, 0) / n;
  const quantiles = [0.25, 0.5, 0.75].map((share) => quantile(values, share));
  return { n, mean, min: values[0], max: values[n - 1], low: quantiles[0], median: quantiles[1], high: quantiles[2] };
}

/** The quantile of ascending values, with linear interpolation. */
export function quantile(values, share) {
  const place = (values.length - 1) * share;
  const below = Math.floor(place);
  const above = Math.min(below + 1, values.length - 1);
  return values[below] + (values[above] - values[below]) * (place - below);
}
