// The rows of trials that the browser has, and which it lacks.

import { number } from "./numbers.js";
import { lowerBound } from "./thin.js";

const MOST_GROWTH = 3;

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
   * iteration (null: none). A trial whose iteration has gone back is asked for as a whole, as is one of which live rows
   * have made more points than are drawn.
   */
  wanted(ids, iterationOf) {
    const wanted = [];
    for (const id of ids) {
      const newest = iterationOf(id) ?? 0;
      const rows = this.#trials.get(id);
      const known = rows?.iteration.at(-1) ?? 0;
      if (rows === undefined) {
        if (newest > 0 && this.#missing.get(id)?.iteration !== newest) wanted.push(id);
      } else if (newest < known || (newest > known && rows.iteration.length > this.points * MOST_GROWTH)) wanted.push(id);
      else if (newest > known && rows.asked !== newest) wanted.push(`${id}:${known}`);
    }
    return wanted;
  }

  /** Takes in an answer of `api/e/KEY/rows` to `wanted`. */
  take(answer, iterationOf) {
    for (const [id, rows] of Object.entries(answer.trials)) {
      this.#missing.delete(id);
      this.#trials.set(id, { ...joined(this.#trials.get(id), rows, this.metric), asked: iterationOf(id) ?? 0 });
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
