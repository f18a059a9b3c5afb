// The words, symbols and colours of states. No DOM in here.

// What ended a trial: `stop_reason` itself, as in the terminal and in JSON.
const ENDS = {
  pruned: ["pruned", "pruned", "dim"],
  user: ["user", "stopped", "dim"],
  stopper: ["stopper", "stopped", "dim"],
  stopped: ["stopped", "stopped", "dim"],
  budget: ["budget", "stopped", "dim"],
  interrupted: ["interrupted", "paused", "held"],
};

const STATUSES = {
  RUNNING: ["running", "running", "accent"],
  PENDING: ["queued", "waiting", "dim"],
  UNSTARTED: ["not started", "waiting", "dim"],
  STARTING: ["starting", "starting", "accent"],
  STOPPING: ["stopping", "stopped", "dim"],
  PAUSED: ["paused", "paused", "held"],
  TERMINATED: ["finished", "done", "good"],
  ERROR: ["failed", "failed", "bad"],
};

const CONDITIONS = {
  starting: ["starting", "starting", "accent"],
  live: ["running", "running", "accent"],
  finished: ["finished", "done", "good"],
  errored: ["ended with errors", "failed", "bad"],
  interrupted: ["interrupted", "paused", "held"],
  "not begun": ["not begun", "waiting", "dim"],
  unreadable: ["unreadable", "warning", "bad"],
};

const ATTEMPTS = {
  ...ENDS,
  running: ["running", "running", "accent"],
  finished: ["finished", "done", "good"],
  failed: ["failed", "failed", "bad"],
  stopped: ["stopped", "stopped", "dim"],
  paused: ["paused", "paused", "held"],
  interrupted: ["interrupted", "paused", "held"],
  lost: ["lost", "failed", "bad"],
  preempted: ["preempted", "stopped", "held"],
};

const state = (table, name) => {
  const [word, symbol, tone] = Object.hasOwn(table, name) ? table[name] : [String(name ?? "unknown").slice(0, 40), "unknown", "dim"];
  return { word, symbol, tone };
};

/**
 * Word, symbol and colour of a trial's state. Why it has stopped says more than TERMINATED does; and a trial
 * whose run is gone has the reason "interrupted" while its last record still says RUNNING.
 */
export function stateOf(status, stopReason = null, pausing = false) {
  if (stopReason === "interrupted" && !isFinal(status) && status !== "PAUSED") return state(ENDS, stopReason);
  if (status === "RUNNING" && pausing) return { word: "pausing", symbol: "paused", tone: "held" };
  if (status === "TERMINATED" && Object.hasOwn(ENDS, stopReason ?? "")) return state(ENDS, stopReason);
  return state(STATUSES, status);
}

/** The state of the trial at a position in a store. In an experiment that no process runs, nothing waits. */
export function stateAt({ columns, isLive }, at) {
  const [status, reason] = [columns.status[at], columns.stop_reason[at]];
  if (!isLive && status === "PENDING" && reason === null) return state(STATUSES, "UNSTARTED");
  return stateOf(status, reason, columns.pausing[at]);
}

/** The word that a store's table shows for it. */
export const wordAt = (store, at) => stateAt(store, at).word;
/** The state of an experiment. One in the list that runs and has no record is starting. */
export const listedCondition = ({ state: name, updated_at: at }) => conditionOf(name === "live" && at === null ? "starting" : name);
export const conditionOf = (name) => state(CONDITIONS, name);
export const attemptEnd = (name) => state(ATTEMPTS, name);

export const isFinal = (status) => status === "TERMINATED" || status === "ERROR";

/** How many trials have failed: one that failed twice may be listed under two causes. */
export function failedTrials(causes) {
  const listed = new Set(causes.flatMap((cause) => cause.trial_ids ?? [cause.trial_id]));
  return causes.reduce((sum, { trials, trial_ids: ids }) => sum + trials - (ids?.length ?? 1), listed.size);
}
