// The Pareto front of two goals.

import { isFinite } from "./numbers.js";

/**
 * The places of the points that no other point beats, from the smallest x to the largest. `modes` has "min" or "max" for
 * x and y. Points without both values are left out; equal points are all on the front.
 */
export function paretoFront(xs, ys, modes) {
  const [signX, signY] = modes.map((mode) => (mode === "max" ? -1 : 1));
  const places = xs.map((_, at) => at).filter((at) => isFinite(xs[at]) && isFinite(ys[at]));
  places.sort((a, b) => signX * (xs[a] - xs[b]) || signY * (ys[a] - ys[b]));
  const front = [];
  for (const at of places) {
    const last = front.at(-1);
    const isEqual = last !== undefined && xs[last] === xs[at] && ys[last] === ys[at];
    if (last === undefined || isEqual || signY * ys[at] < signY * ys[last]) front.push(at);
  }
  return signX < 0 ? front.reverse() : front;
}

/** The corners of the stairs that bound what the front beats: [[x, y], ...] in ascending x. */
export function stairs(points, modes) {
  const corners = [];
  points.forEach(([x, y], at) => {
    if (at > 0) {
      const [beforeX, beforeY] = points[at - 1];
      const worseX = modes[0] === "max" ? Math.min(x, beforeX) : Math.max(x, beforeX);
      const worseY = modes[1] === "max" ? Math.min(y, beforeY) : Math.max(y, beforeY);
      corners.push([worseX, worseY]);
    }
    corners.push([x, y]);
  });
  return corners;
}
