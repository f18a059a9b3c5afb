// What it costs to pause trials at once, for the dialog that asks. No DOM in here.

import { count, iterations } from "./format.js";

/** `{running, text}`: those of the trials that have a worker, and what runs again later if they lose it now. */
export function costOfPause(store, ids) {
  const running = ids.filter((id) => ["RUNNING", "STARTING"].includes(store.value(id, "status")));
  const lost = running.map((id) => ({ last: store.value(id, "iteration") ?? 0, saved: store.value(id, "checkpoint_iteration") }));
  return { running, text: lost.length === 0 ? "" : lost.length === 1 ? costOfOne(lost[0]) : costOfSeveral(lost) };
}

function costOfOne({ last, saved }) {
  if (last === 0 && saved === null) return "It has not reported yet: it starts over.";
  const again = last > (saved ?? 0) ? `${iterations(saved ?? 0, last)}, and what it has trained since, run again.` : "what it has trained since then runs again.";
  return saved === null ? `It has no checkpoint: it starts over, and ${again}` : `It continues from the checkpoint of iteration ${saved.toLocaleString("en")}: ${again}`;
}

function costOfSeveral(lost) {
  const again = lost.reduce((sum, { last, saved }) => sum + Math.max(0, last - (saved ?? 0)), 0);
  const unsaved = lost.filter(({ saved }) => saved === null).length;
  const over = unsaved === 0 ? "" : ` ${unsaved === lost.length ? "None of them has a checkpoint: they start over" : `${unsaved} of them ${unsaved === 1 ? "has no checkpoint and starts over" : "have no checkpoint and start over"}`}.`;
  return `What they have trained since their newest checkpoints runs again: ${count(again, "reported iteration")} altogether.${over}`;
}
