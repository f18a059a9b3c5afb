// Trials for the tests of the page's pure modules.

import { Store } from "../../../src/holdfast/web/static/js/store.js";

/** An answer of `api/e/KEY/trials` with a row for each of `trials`; what a trial leaves out is null. */
export function answerOf(trials, version = 1) {
  const filled = (part) => {
    const names = [...new Set(trials.flatMap((trial) => Object.keys(trial[part] ?? {})))];
    return JSON.parse(`{${names.map((name) => `${JSON.stringify(name)}: ${JSON.stringify(trials.map((trial) => trial[part]?.[name] ?? null))}`).join(", ")}}`);
  };
  const columns = ["index", "status", "stop_reason", "value", "iteration", "failures", "note", "error", "name", "node", "is_added", "confirms"];
  return {
    version,
    ids: trials.map(({ trial_id }) => trial_id),
    columns: Object.fromEntries(columns.map((name) => [name, trials.map((trial) => trial[name] ?? null)])),
    params: filled("params"),
    metrics: filled("metrics"),
  };
}

export const TRIALS = [
  { trial_id: "a1", index: 0, status: "TERMINATED", stop_reason: "finished", value: 0.3, iteration: 10, params: { lr: 0.1, opt: "adam" }, metrics: { loss: 0.3 } },
  { trial_id: "b2", index: 1, status: "ERROR", stop_reason: "failed", value: null, failures: 2, error: "RuntimeError: CUDA out of memory", params: { lr: 0.01, opt: "sgd" } },
  { trial_id: "c3", index: 2, status: "RUNNING", value: "NaN", iteration: 4, note: "looks odd", params: { lr: 0.001, opt: "adam" }, metrics: { loss: "NaN" } },
  { trial_id: "12e45678", index: 3, status: "TERMINATED", stop_reason: "pruned", value: 0.2, iteration: 2, params: { lr: 0.0001, opt: "SGD" }, metrics: { loss: 0.2, "val loss": 0.4 } },
];

export const store = () => new Store(answerOf(TRIALS));
