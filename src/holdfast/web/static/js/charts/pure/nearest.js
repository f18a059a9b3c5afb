// Which curve or point is next to the pointer.

import { lowerBound } from "./thin.js";

/**
 * The curve of `curves` ([{points: [[x, y]...], ascending x}]) that is nearest to the pixel, within `reach` pixels:
 * `{at, index}` (the curve's place and its nearest point), or null. `x` and `y` are axis maps.
 */
export function nearestCurve(curves, x, y, px, py, reach) {
  let found = null;
  let best = reach * reach;
  const [from, to] = [x.value(px - reach), x.value(px + reach)];
  curves.forEach(({ points, xs }, at) => {
    const first = Math.max(lowerBound(xs, from) - 1, 0);
    for (let index = first; index < points.length; index++) {
      const here = distance(points, index, x, y, px, py);
      if (here < best) {
        best = here;
        found = { at, index: nearer(points, index, x, px) };
      }
      if (xs[index] > to) break;
    }
  });
  return found;
}

function nearer(points, index, x, px) {
  if (index === 0) return 0;
  const [before, here] = [index - 1, index].map((one) => Math.abs(x.pixel(points[one][0]) - px));
  return before < here ? index - 1 : index;
}

/** The square of the distance to the segment that ends at `index`, in pixels. */
function distance(points, index, x, y, px, py) {
  const [bx, by] = [x.pixel(points[index][0]), y.pixel(points[index][1])];
  if (Number.isNaN(by)) return Infinity;
  const before = index > 0 ? points[index - 1] : points[index];
  const [ax, ay] = [x.pixel(before[0]), y.pixel(before[1])];
  if (Number.isNaN(ay)) return (px - bx) ** 2 + (py - by) ** 2;
  const length = (bx - ax) ** 2 + (by - ay) ** 2;
  const share = length === 0 ? 0 : Math.min(Math.max(((px - ax) * (bx - ax) + (py - ay) * (by - ay)) / length, 0), 1);
  return (px - ax - share * (bx - ax)) ** 2 + (py - ay - share * (by - ay)) ** 2;
}

/** The place of the point ([x, y] in pixels, or null) nearest to the pixel within `reach`; -1 if there is none. */
export function nearestPoint(pixels, px, py, reach) {
  let [found, best] = [-1, reach * reach];
  pixels.forEach((point, at) => {
    if (point === null) return;
    const here = (point[0] - px) ** 2 + (point[1] - py) ** 2;
    if (here <= best) [found, best] = [at, here];
  });
  return found;
}

/** Whether the polygon ([[x, y], ...]) contains the point. */
export function isInside(polygon, [px, py]) {
  let inside = false;
  for (let at = 0, before = polygon.length - 1; at < polygon.length; before = at++) {
    const [ax, ay] = polygon[at];
    const [bx, by] = polygon[before];
    if (ay > py !== by > py && px < ((bx - ax) * (py - ay)) / (by - ay) + ax) inside = !inside;
  }
  return inside;
}
