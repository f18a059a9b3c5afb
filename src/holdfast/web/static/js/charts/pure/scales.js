// Axes: the range of values, round ticks, and the linear map between values and pixels.

import { isFinite } from "./numbers.js";

/** The smallest and largest finite value (above 0 for a log axis), or null if there is none. */
export function extent(values, log = false) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (!isFinite(value) || (log && value <= 0)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : null;
}

/** The range with a margin (a share of it) on both sides; one value gets a range around it. */
export function padded([low, high], log = false, share = 0.04) {
  if (log) return padded([Math.log10(low), Math.log10(high)], false, share).map((exponent) => 10 ** exponent);
  if (low === high) {
    const room = Math.abs(low) * 0.1 || 1;
    return [low - room, high + room];
  }
  const room = (high - low) * share;
  return [low - room, high + room];
}

/** About `count` round values in the range. */
export function ticks([low, high], log = false, count = 6) {
  return log ? logTicks(low, high, count) : linearTicks(low, high, count);
}

function linearTicks(low, high, count) {
  const step = roundStep((high - low) / Math.max(count, 1));
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: Math.max(last - first + 1, 0) }, (_, at) => Number(((first + at) * step).toPrecision(12)));
}

function roundStep(step) {
  const power = 10 ** Math.floor(Math.log10(step));
  return power * ([1, 2, 2.5, 5].find((factor) => factor * power >= step * (1 - 1e-9)) ?? 10);
}

/** Powers of ten; with 2 and 5 between them where the range is short, and linear ticks below half a decade. */
function logTicks(low, high, count) {
  const [from, to] = [Math.log10(low), Math.log10(high)];
  if (to - from < 0.5) return linearTicks(low, high, count);
  const step = Math.max(Math.ceil((to - from) / count), 1);
  const factors = (to - from) * 3 <= count + 1 ? [1, 2, 5] : (to - from) * 2 <= count + 1 ? [1, 3] : [1];
  const found = [];
  for (let power = Math.floor(from); power <= Math.ceil(to); power += 1) {
    if (factors.length === 1 && ((power % step) + step) % step !== 0) continue;
    for (const factor of factors) {
      const value = Number((factor * 10 ** power).toPrecision(12));
      if (value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9)) found.push(value);
    }
  }
  return found;
}

/** `pixel(value)` and `value(pixel)` of an axis that shows `range` between the pixels `from` and `to`. */
export function axisMap([low, high], [from, to], log = false) {
  const forward = log ? Math.log10 : (value) => value;
  const back = log ? (value) => 10 ** value : (value) => value;
  const [start, slope] = [forward(low), (to - from) / (forward(high) - forward(low))];
  return {
    pixel: (value) => from + (forward(value) - start) * slope,
    value: (pixel) => back(start + (pixel - from) / slope),
  };
}

/** The part of `range` between the pixels; the zoom that a drag asks for. */
export function zoomed(map, pixels) {
  const [a, b] = pixels.map(map.value);
  return a < b ? [a, b] : [b, a];
}

/** The range made `factor` times as wide around its middle. */
export function scaled([low, high], factor, log = false) {
  if (log) return scaled([Math.log10(low), Math.log10(high)], factor).map((exponent) => 10 ** exponent);
  const [middle, half] = [(low + high) / 2, ((high - low) / 2) * factor];
  return [middle - half, middle + half];
}
