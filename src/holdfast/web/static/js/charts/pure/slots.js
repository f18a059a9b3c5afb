// Who has which colour: a trial keeps its own while it is shown.

/** Gives each id the lowest free number; ids that `slots` has already keep theirs, others leave. */
export function assigned(slots, ids) {
  const next = new Map();
  const taken = new Set();
  for (const id of ids) {
    if (!slots.has(id)) continue;
    next.set(id, slots.get(id));
    taken.add(slots.get(id));
  }
  let free = 0;
  for (const id of ids) {
    if (next.has(id)) continue;
    while (taken.has(free)) free += 1;
    next.set(id, free);
    taken.add(free);
  }
  return next;
}
