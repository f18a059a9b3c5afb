// What schedulers decided, fronts, and what ran when.

import assert from "node:assert/strict";
import { test } from "node:test";
import { paretoFront, stairs } from "../../../src/holdfast/web/static/js/charts/pure/front.js";
import { concurrency, estimated, fewer } from "../../../src/holdfast/web/static/js/charts/pure/intervals.js";
import { changedNames, lineage, steps } from "../../../src/holdfast/web/static/js/charts/pure/lineage.js";
import { brackets, jitter, outcome, rungTable } from "../../../src/holdfast/web/static/js/charts/pure/rungs.js";

test("the front has the points that no other point beats, by brute force", () => {
  let seed = 5;
  const random = () => (seed = (seed * 16807) % 2147483647) / 2147483647;
  for (const modes of [["min", "min"], ["max", "min"], ["min", "max"], ["max", "max"]]) {
    const xs = Array.from({ length: 60 }, () => Math.round(random() * 12));
    const ys = Array.from({ length: 60 }, () => Math.round(random() * 12));
    const better = (mode, a, b) => (mode === "min" ? a < b : a > b);
    const beats = (a, b) =>
      !better(modes[0], xs[b], xs[a]) && !better(modes[1], ys[b], ys[a]) && (better(modes[0], xs[a], xs[b]) || better(modes[1], ys[a], ys[b]));
    const expected = xs.map((_, at) => at).filter((at) => !xs.some((_, other) => beats(other, at)));
    const found = paretoFront(xs, ys, modes);
    assert.deepEqual([...found].sort((a, b) => a - b), expected);
    assert.ok(found.every((at, place) => place === 0 || xs[at] >= xs[found[place - 1]]));
  }
});

test("points without both values are not on the front", () => {
  assert.deepEqual(paretoFront([1, NaN, null, 2], [1, 0, 0, Infinity], ["min", "min"]), [0]);
});

test("stairs bound what the front beats", () => {
  assert.deepEqual(stairs([[1, 5], [3, 2]], ["min", "min"]), [[1, 5], [3, 5], [3, 2]]);
  assert.deepEqual(stairs([[1, 5], [3, 2]], ["max", "max"]), [[1, 5], [1, 2], [3, 2]]);
});

const takeovers = [
  { trial_id: "b", source: "a", iteration: 10, source_iteration: 10, changes: { lr: [0.1, 0.2] }, at: 100 },
  { trial_id: "c", source: "b", iteration: 20, source_iteration: 15, changes: { lr: [0.5, 0.3], width: [1, 2] }, at: 200 },
  { trial_id: "b", source: "d", iteration: 30, source_iteration: 30, changes: { lr: [0.2, 0.4] }, at: 300 },
];
const population = ["a", "b", "c", "d"].map((id) => ({ id, end: 40, params: { lr: 0.4, width: 2 } }));

test("weights come from where they began, through several takeovers", () => {
  const { lanes, arrows } = lineage(population, takeovers, "iteration");
  const lane = (id) => lanes.find((one) => one.id === id).stretches;
  assert.deepEqual(lane("c"), [{ from: 0, to: 20, origin: "c" }, { from: 15, to: 40, origin: "a" }]);
  assert.deepEqual(lane("b").map(({ origin }) => origin), ["b", "a", "d"]);
  assert.deepEqual(arrows.map(({ id, source }) => [source, id]), [["a", "b"], ["b", "c"], ["d", "b"]]);
});

test("lanes of one family are neighbours, the largest family first", () => {
  assert.deepEqual(lineage(population, takeovers, "iteration").lanes.map(({ id }) => id), ["a", "c", "b", "d"]);
});

test("against time, lanes change where the takeover happened", () => {
  const { lanes } = lineage(population.map((one) => ({ ...one, end: 400 })), takeovers, "at", 50);
  assert.deepEqual(lanes.find(({ id }) => id === "c").stretches, [{ from: 50, to: 200, origin: "c" }, { from: 200, to: 400, origin: "a" }]);
});

test("a source that has no lane is still the origin", () => {
  const { lanes } = lineage([population[1]], takeovers, "iteration");
  assert.deepEqual(lanes[0].stretches.map(({ origin }) => origin), ["b", "a", "d"]);
});

test("a parameter's steps begin with the value before the first takeover", () => {
  assert.deepEqual(steps(population[1], takeovers, "lr", "iteration"), [[0, 0.1], [10, 0.2], [30, 0.4], [40, 0.4]]);
  assert.deepEqual(steps(population[0], takeovers, "lr", "iteration"), [[0, 0.4], [40, 0.4]]);
  assert.deepEqual(changedNames(takeovers), ["lr", "width"]);
});

const visits = [
  { trial_id: "a", milestone: 1, bracket: 0, promoted: true, value: 0.1, cutoff: 0.3, at: 1 },
  { trial_id: "b", milestone: 1, bracket: 0, promoted: false, value: 0.9, cutoff: 0.2, at: 2 },
  { trial_id: "c", milestone: 1, bracket: 0, promoted: null, value: 0.5, cutoff: null, at: 3 },
  { trial_id: "d", milestone: 1, bracket: 0, promoted: null, value: 0.5, cutoff: null, at: 4 },
  { trial_id: "a", milestone: 4, bracket: 0, promoted: null, value: 0.1, cutoff: null, at: 5 },
  { trial_id: "e", milestone: 4, bracket: 1, promoted: false, value: NaN, cutoff: 0.2, at: 6 },
];
const statusOf = (id) => ({ c: "PAUSED", d: "ERROR", a: "TERMINATED" })[id];

test("a trial at a rung is promoted, stopped, not decided, or ended otherwise", () => {
  assert.deepEqual(visits.map((visit) => outcome(visit, statusOf(visit.trial_id))), ["promoted", "stopped", "waiting", "ended", "ended", "stopped"]);
});

test("rungs count their trials, and have the cutoff of the newest decision", () => {
  const [first, second, third] = rungTable(visits, statusOf);
  assert.deepEqual([first.reached, first.promoted, first.stopped, first.waiting, first.ended, first.cutoff], [4, 1, 1, 1, 1, 0.2]);
  assert.deepEqual([second.milestone, second.cutoff], [4, null]);
  assert.deepEqual([third.bracket, third.reached], [1, 1]);
  assert.deepEqual(brackets(visits), [0, 1]);
});

test("trials of a rung are spread, each always at the same place", () => {
  const places = Array.from({ length: 50 }, (_, at) => jitter(at));
  assert.ok(places.every((place) => place >= -0.5 && place < 0.5));
  assert.equal(new Set(places).size, 50);
});

test("concurrency counts the intervals at each moment", () => {
  assert.deepEqual(concurrency([[0, 10], [5, 15], [10, 20], [3, 3]]), [[0, 1], [5, 2], [10, 2], [15, 1], [20, 0]]);
});

test("a trial ran, as far as is known, for its training time before its last report", () => {
  const columns = { reported_at: [100, null, 50], time_total_s: [30, 5, 20], status: ["TERMINATED", "PENDING", "RUNNING"] };
  assert.deepEqual(estimated(columns, 200), [[70, 100], [30, 200]]);
});

test("of many steps the highest ones stay", () => {
  const many = Array.from({ length: 1000 }, (_, at) => [at, at === 537 ? 99 : 1]);
  const few = fewer(many, 100);
  assert.equal(few.length, 100);
  assert.ok(few.some(([, running]) => running === 99));
});
