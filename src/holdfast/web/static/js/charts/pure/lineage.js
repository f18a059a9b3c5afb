// Population-based training: whose weights each trial had, from when to when, and with which values.

/**
 * One lane for each trial of `trials` ([{id, end, params}]; `end` is its last iteration or time). A takeover
 * ({trial_id, source, iteration, source_iteration, changes: {name: [before, after]}, at}) ends a stretch of its lane and
 * begins another with the weights of the source. `axis` is "iteration" or "at"; lanes begin at `start`.
 *
 * Returns `{lanes: [{id, stretches: [{from, to, origin}]}], arrows: [{id, source, from, to, changes, takeover}]}`, where
 * `origin` is the trial in which these weights began, and an arrow leads from `from` in the source's lane to `to` in the
 * trial's. Lanes with the same last origin are neighbours, the largest family first.
 */
export function lineage(trials, takeovers, axis, start = 0) {
  const open = new Map(trials.map(({ id }) => [id, { from: start, origin: id }]));
  const stretches = new Map(trials.map(({ id }) => [id, []]));
  const arrows = [];
  for (const takeover of [...takeovers].sort((a, b) => a.at - b.at)) {
    const { trial_id: id, source } = takeover;
    if (!open.has(id)) continue;
    const leaves = axis === "at" ? takeover.at : takeover.iteration;
    const enters = axis === "at" ? takeover.at : takeover.source_iteration;
    const before = open.get(id);
    stretches.get(id).push({ ...before, to: Math.max(leaves, before.from) });
    open.set(id, { from: enters, origin: open.get(source)?.origin ?? source });
    arrows.push({ id, source, from: enters, to: enters, changes: takeover.changes, takeover });
  }
  const lanes = trials.map(({ id, end }) => {
    const last = open.get(id);
    return { id, stretches: [...stretches.get(id), { ...last, to: Math.max(end ?? last.from, last.from) }] };
  });
  return { lanes: byFamily(lanes), arrows };
}

function byFamily(lanes) {
  const origin = (lane) => lane.stretches.at(-1).origin;
  const sizes = new Map();
  for (const lane of lanes) sizes.set(origin(lane), (sizes.get(origin(lane)) ?? 0) + 1);
  const order = [...sizes.keys()].sort((a, b) => sizes.get(b) - sizes.get(a));
  return lanes
    .map((lane, at) => ({ lane, at, family: order.indexOf(origin(lane)) }))
    .sort((a, b) => a.family - b.family || a.at - b.at)
    .map(({ lane }) => lane);
}

/** A parameter of a trial over time: [[x, value], ...], one step for each change, up to `end`. */
export function steps(trial, takeovers, name, axis, start = 0) {
  const own = takeovers.filter(({ trial_id: id, changes }) => id === trial.id && Object.hasOwn(changes, name)).sort((a, b) => a.at - b.at);
  const first = own.length > 0 ? own[0].changes[name][0] : trial.params[name];
  const points = [[start, first]];
  for (const takeover of own) points.push([axis === "at" ? takeover.at : takeover.iteration, takeover.changes[name][1]]);
  points.push([Math.max(trial.end ?? start, points.at(-1)[0]), points.at(-1)[1]]);
  return points;
}

/** The parameters that takeovers changed, the most often changed first. */
export function changedNames(takeovers) {
  const counts = new Map();
  for (const { changes } of takeovers) for (const name of Object.keys(changes)) counts.set(name, (counts.get(name) ?? 0) + 1);
  return [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a) || a.localeCompare(b));
}
