// The rows of trials that the browser has, and which it lacks.

import { number } from "./numbers.js";
import { lowerBound, thinnedPlaces } from "./thin.js";

// Live rows make more points than are drawn. At so many times as many, every other one stays or so.
const MOST_GROWTH = 3;
const FEWEST_POINTS = 20;

/** Rows with one metric. `points` is the number of rows to which the server thins a trial. */
export class Rows {
  #trials = new Map();
  #missing = new Map();

  constructor(metric, points) {
    Object.assign(this, { metric, points });
  }

  /** The rows of a trial: `{iteration, time_total_s, timestamp, values, starts}`; undefined if there are none yet. */
  get(id) {
    return this.#trials.get(id);
  }

  /** Why a trial has no rows; undefined if it has. */
  missing(id) {
    return this.#missing.get(id)?.why;
  }

  /**
   * What to ask the server for: `ID`, or `ID:120` for the rows after iteration 120. `iterationOf(id)` is the trial's newest
   * iteration (null: none). A trial whose iteration has gone back is asked for as a whole.
   */
  wanted(ids, iterationOf) {
    const wanted = [];
    for (const id of ids) {
      const newest = iterationOf(id) ?? 0;
      const rows = this.#trials.get(id);
      const known = rows?.iteration.at(-1) ?? 0;
      if (rows === undefined) {
        if (newest > 0 && this.#missing.get(id)?.iteration !== newest) wanted.push(id);
      } else if (newest < known) wanted.push(id);
      else if (newest > known && rows.asked !== newest) wanted.push(`${id}:${known}`);
    }
    return wanted;
  }

  /** To how many points the server thins each trial of the answer: new rows need be no denser than those before them. */
  pointsFor(wanted, iterationOf) {
    const shares = wanted.map((one) => {
      const [id, after] = one.split(":");
      const newest = iterationOf(id) ?? 0;
      return after === undefined || newest === 0 ? 1 : (newest - Number(after)) / newest;
    });
    return Math.max(FEWEST_POINTS, Math.min(this.points, Math.ceil(this.points * Math.max(...shares))));
  }

  /** Takes in an answer of `api/e/KEY/rows` to `wanted`. */
  take(answer, iterationOf) {
    for (const [id, rows] of Object.entries(answer.trials)) {
      this.#missing.delete(id);
      const all = joined(this.#trials.get(id), rows, this.metric);
      this.#trials.set(id, { ...fewer(all, this.points), asked: iterationOf(id) ?? 0 });
    }
    for (const [id, why] of Object.entries(answer.missing ?? {})) this.#missing.set(id, { why, iteration: iterationOf(id) ?? 0 });
  }
}

function joined(before, rows, metric) {
  const kept = before === undefined ? 0 : lowerBound(before.iteration, rows.from ?? 0);
  const together = (old, more) => (kept === 0 ? more : old.slice(0, kept).concat(more));
  const values = (rows.metrics[metric] ?? rows.iteration.map(() => null)).map(number);
  return {
    iteration: together(before?.iteration, rows.iteration),
    time_total_s: together(before?.time_total_s, rows.time_total_s),
    timestamp: together(before?.timestamp, rows.timestamp),
    values: together(before?.values, values),
    starts: rows.starts ?? before?.starts ?? [],
  };
}

/** The rows, thinned if there are too many. The last stays: it says what is new. */
function fewer(rows, points) {
  if (rows.iteration.length <= points * MOST_GROWTH) return rows;
  const places = thinnedPlaces(rows.values, points);
  const of = (column) => places.map((at) => column[at]);
  return { ...rows, iteration: of(rows.iteration), time_total_s: of(rows.time_total_s), timestamp: of(rows.timestamp), values: of(rows.values) };
}
