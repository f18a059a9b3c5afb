// How many trials ran at each moment.

import { isFinite } from "./numbers.js";

/** The steps [[at, running], ...] of intervals [[begin, end], ...]. */
export function concurrency(intervals) {
  const changes = new Map();
  for (const [begin, end] of intervals) {
    if (!(end > begin)) continue;
    changes.set(begin, (changes.get(begin) ?? 0) + 1);
    changes.set(end, (changes.get(end) ?? 0) - 1);
  }
  let running = 0;
  return [...changes.keys()].sort((a, b) => a - b).map((at) => [at, (running += changes.get(at))]);
}

/** When each trial ran, as far as its columns say: from its training time to its last report, without pauses. */
export function estimated(columns, now) {
  const intervals = [];
  (columns.reported_at ?? []).forEach((reported, at) => {
    const spent = columns.time_total_s?.[at];
    if (!isFinite(reported) || !isFinite(spent)) return;
    intervals.push([reported - spent, columns.status[at] === "RUNNING" ? Math.max(now, reported) : reported]);
  });
  return intervals;
}

/** At most `most` of the steps: of each stretch the one with the most running trials stays. */
export function fewer(steps, most) {
  if (steps.length <= most) return steps;
  const size = steps.length / most;
  return Array.from({ length: most }, (_, at) => {
    const part = steps.slice(Math.floor(at * size), Math.floor((at + 1) * size));
    return part.reduce((highest, step) => (step[1] > highest[1] ? step : highest));
  });
}
