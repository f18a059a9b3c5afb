// Rungs of ASHA and HyperBand: what became of the trials there.

import { isFinite } from "./numbers.js";

/** What became of a trial at a rung; `status` is the trial's now. */
export function outcome(visit, status) {
  if (visit.promoted === true) return "promoted";
  if (visit.promoted === false) return "stopped";
  return status === "PAUSED" || status === "RUNNING" || status === "PENDING" ? "waiting" : "ended";
}

export const OUTCOMES = ["promoted", "stopped", "waiting", "ended"];

/** The brackets of visits in ascending order. */
export const brackets = (visits) => [...new Set(visits.map(({ bracket }) => bracket ?? 0))].sort((a, b) => a - b);

/**
 * The rungs of the visits, the lowest first: `{bracket, milestone, reached, promoted, stopped, waiting, ended, cutoff}`.
 * `cutoff` is what the newest judged trial needed. `statusOf(id)` is a trial's status now.
 */
export function rungTable(visits, statusOf) {
  const rungs = new Map();
  for (const visit of visits) {
    const bracket = visit.bracket ?? 0;
    const key = `${bracket}/${visit.milestone}`;
    if (!rungs.has(key)) {
      rungs.set(key, { bracket, milestone: visit.milestone, reached: 0, promoted: 0, stopped: 0, waiting: 0, ended: 0, cutoff: null, at: -Infinity });
    }
    const rung = rungs.get(key);
    rung.reached += 1;
    rung[outcome(visit, statusOf(visit.trial_id))] += 1;
    if (isFinite(visit.cutoff) && visit.at >= rung.at) [rung.cutoff, rung.at] = [visit.cutoff, visit.at];
  }
  return [...rungs.values()].sort((a, b) => a.bracket - b.bracket || a.milestone - b.milestone);
}

/** Where a trial is between the edges of its rung (-0.5 to 0.5): the same place each time, spread evenly. */
export const jitter = (index) => ((index * 0.6180339887) % 1) - 0.5;
