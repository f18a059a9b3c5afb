// Smoothing of a curve whose points are unevenly spaced.

import { isFinite } from "./numbers.js";

/**
 * A time-weighted moving average: a point `halfLife` back (in the unit of `xs`) weighs half of the newest one. The start
 * is unbiased. A value that is not finite stays as it is and changes nothing. Returns `ys` for a half-life of 0.
 */
export function smoothed(xs, ys, halfLife) {
  if (!(halfLife > 0)) return ys;
  let sum = 0;
  let weight = 0;
  let last = null;
  return ys.map((y, at) => {
    if (!isFinite(y)) return y;
    const faded = last === null ? 0 : 2 ** (-Math.max(xs[at] - last, 0) / halfLife);
    last = xs[at];
    sum = sum * faded + y;
    weight = weight * faded + 1;
    return sum / weight;
  });
}

/** The half-life of a slider from 0 to 100, for curves that span so much: at most a quarter of it, finer at the start. */
export const halfLifeOf = (slider, span) => (slider / 100) ** 2 * span * 0.25;
