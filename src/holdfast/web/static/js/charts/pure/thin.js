// Curves with fewer points that look the same.

import { isFinite } from "./numbers.js";

/** The first index whose x is at least `value`, in ascending `xs`. */
export function lowerBound(xs, value) {
  let low = 0;
  let high = xs.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * The points [[x, y], ...] between the x values `from` and `to`, with one more on both sides so that the line reaches the
 * edge. Of more than about `most` points, the lowest, the highest, the first and the last of each bucket stay, and one
 * point without a value, which interrupts the line.
 */
export function thinned(xs, ys, most, from = -Infinity, to = Infinity) {
  const first = Math.max(lowerBound(xs, from) - 1, 0);
  let end = lowerBound(xs, to);
  while (end < xs.length && xs[end] === to) end += 1;
  end = Math.min(end + 1, xs.length);
  const points = [];
  const buckets = Math.max(Math.floor(most / 4), 1);
  const size = (end - first) / buckets;
  if (size <= 4) {
    for (let at = first; at < end; at++) points.push([xs[at], ys[at]]);
    return points;
  }
  for (let bucket = 0; bucket < buckets; bucket++) {
    const start = first + Math.floor(bucket * size);
    for (const at of kept(ys, start, first + Math.floor((bucket + 1) * size))) points.push([xs[at], ys[at]]);
  }
  return points;
}

/** Which of the values stay if about `most` do: of each bucket, those that `thinned` keeps. */
export function thinnedPlaces(ys, most) {
  const buckets = Math.max(Math.floor(most / 4), 1);
  const size = ys.length / buckets;
  if (size <= 4) return ys.map((_, at) => at);
  return Array.from({ length: buckets }, (_, bucket) => kept(ys, Math.floor(bucket * size), Math.floor((bucket + 1) * size))).flat();
}

function kept(ys, start, end) {
  let [low, high, gap] = [-1, -1, -1];
  for (let at = start; at < end; at++) {
    if (!isFinite(ys[at])) gap = at;
    else {
      if (low < 0 || ys[at] < ys[low]) low = at;
      if (high < 0 || ys[at] > ys[high]) high = at;
    }
  }
  const marks = [start, low, high, gap, end - 1].filter((at) => at >= 0);
  return [...new Set(marks)].sort((a, b) => a - b);
}
