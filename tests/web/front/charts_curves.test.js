// Learning curves: what is read, smoothed, thinned, and found under the pointer.

import assert from "node:assert/strict";
import { test } from "node:test";
import { bands, grid, quantile } from "../../../src/holdfast/web/static/js/charts/pure/bands.js";
import { curves, pointsEach, ranges } from "../../../src/holdfast/web/static/js/charts/pure/curves.js";
import { isInside, nearestCurve, nearestPoint } from "../../../src/holdfast/web/static/js/charts/pure/nearest.js";
import { Rows } from "../../../src/holdfast/web/static/js/charts/pure/rows.js";
import { axisMap } from "../../../src/holdfast/web/static/js/charts/pure/scales.js";
import { assigned } from "../../../src/holdfast/web/static/js/charts/pure/slots.js";
import { halfLifeOf, smoothed } from "../../../src/holdfast/web/static/js/charts/pure/smooth.js";
import { lowerBound, thinned, thinnedPlaces } from "../../../src/holdfast/web/static/js/charts/pure/thin.js";

const upTo = (count) => Array.from({ length: count }, (_, at) => at);
const near = (actual, expected) => assert.ok(Math.abs(actual - expected) < 1e-9, `${actual} is not ${expected}`);

test("a point one half-life back weighs half", () => {
  const [first, second] = smoothed([0, 10], [0, 3], 10);
  assert.equal(first, 0);
  near(second, (0 * 0.5 + 3) / 1.5);
});

test("smoothing weighs by distance and not by the number of points", () => {
  const far = smoothed([0, 1, 1000], [5, 5, 1], 10);
  near(far[2], 1);
});

test("smoothing leaves a gap as it is and continues after it", () => {
  const values = smoothed([0, 1, 2], [4, NaN, 4], 5);
  assert.deepEqual(values, [4, NaN, 4]);
});

test("without smoothing the values are the same array", () => {
  const ys = [1, 2];
  assert.equal(smoothed([0, 1], ys, 0), ys);
  assert.equal(halfLifeOf(0, 100), 0);
  assert.equal(halfLifeOf(100, 100), 25);
});

test("a thinned curve keeps its ends, and the lowest and highest value of every bucket", () => {
  const xs = upTo(10_000);
  const ys = xs.map((x) => Math.sin(x / 300));
  ys[4321] = 50;
  ys[8765] = -50;
  const points = thinned(xs, ys, 400);
  assert.ok(points.length <= 404);
  assert.deepEqual(points[0], [0, ys[0]]);
  assert.deepEqual(points.at(-1), [9999, ys[9999]]);
  assert.ok(points.some(([x, y]) => x === 4321 && y === 50) && points.some(([x, y]) => x === 8765 && y === -50));
  assert.ok(points.every(([x], at) => at === 0 || x > points[at - 1][0]));
});

test("a thinned curve is still interrupted where a value is missing", () => {
  const ys = upTo(5000).map((x) => (x === 2500 ? NaN : 1));
  assert.ok(thinned(upTo(5000), ys, 100).some(([, y]) => Number.isNaN(y)));
});

test("a zoomed curve has one more point on both sides", () => {
  assert.deepEqual(thinned([0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5], 100, 2, 3).map(([x]) => x), [1, 2, 3, 4]);
  assert.deepEqual(thinned([0, 1, 2], [0, 1, 2], 100, 1.2, 1.4).map(([x]) => x), [1, 2]);
});

test("lowerBound finds the first value that is not smaller", () => {
  assert.deepEqual([-1, 1, 2, 9].map((value) => lowerBound([1, 1, 3, 5], value)), [0, 0, 2, 4]);
});

test("bands summarise the curves that have reached x, each with its newest value", () => {
  const [one, two] = bands([{ xs: [0, 2], ys: [1, 3] }, { xs: [0, 1, 4], ys: [5, 7, 9] }], [1.5, 3]);
  assert.deepEqual([one.n, one.mean, one.min, one.max, one.median], [2, 4, 1, 7, 4]);
  assert.deepEqual([two.n, two.mean], [1, 7]);
});

test("bands leave out values that are not finite", () => {
  const [one] = bands([{ xs: [0, 1], ys: [2, NaN] }], [1]);
  assert.deepEqual([one.n, one.mean], [1, 2]);
});

test("quartiles are interpolated", () => {
  assert.equal(quantile([1, 2, 3, 4], 0.25), 1.75);
  assert.equal(quantile([7], 0.75), 7);
});

test("a grid has the curves' ends, and is even in logarithms on a log axis", () => {
  assert.deepEqual(grid([{ xs: [1, 5] }, { xs: [3, 9] }], 3), [1, 5, 9]);
  const [, middle] = grid([{ xs: [0, 1, 100] }], 3, true);
  near(middle, 10);
  assert.deepEqual(grid([{ xs: [4] }], 3), [4]);
  assert.deepEqual(grid([], 3), []);
});

const answer = (from, iteration, more = {}) => ({ trials: { a: { from, iteration, time_total_s: iteration, timestamp: iteration, metrics: { loss: iteration.map((i) => 1 / i) }, ...more } } });

test("only new rows are asked for", () => {
  const rows = new Rows("loss", 2000);
  assert.deepEqual(rows.wanted(["a"], () => 3), ["a"]);
  rows.take(answer(1, [1, 2, 3]), () => 3);
  assert.deepEqual(rows.wanted(["a"], () => 3), []);
  assert.deepEqual(rows.wanted(["a"], () => 5), ["a:3"]);
  rows.take(answer(4, [4, 5]), () => 5);
  assert.deepEqual(rows.get("a").iteration, [1, 2, 3, 4, 5]);
  assert.equal(rows.get("a").values.length, 5);
});

test("an answer replaces the rows from the iteration that it says", () => {
  const rows = new Rows("loss", 2000);
  rows.take(answer(1, [1, 2, 3, 4]), () => 4);
  rows.take(answer(3, [3, 4, 5]), () => 5);
  assert.deepEqual(rows.get("a").iteration, [1, 2, 3, 4, 5]);
});

test("a trial that went back is read as a whole", () => {
  const rows = new Rows("loss", 2000);
  rows.take(answer(1, [1, 2, 3, 4]), () => 4);
  assert.deepEqual(rows.wanted(["a"], () => 2), ["a"]);
});

test("rows that have grown far beyond what is drawn are thinned, and only new ones are asked for", () => {
  const rows = new Rows("loss", 20);
  const all = upTo(61).map((i) => i + 1);
  rows.take(answer(1, all), () => 61);
  const { iteration, values, timestamp } = rows.get("a");
  assert.ok(iteration.length <= 25);
  assert.deepEqual([iteration[0], iteration.at(-1)], [1, 61]);
  assert.deepEqual([values.length, timestamp.length], [iteration.length, iteration.length]);
  assert.deepEqual(rows.wanted(["a"], () => 62), ["a:61"]);
});

test("new rows are asked for as densely as those before them are", () => {
  const rows = new Rows("loss", 2000);
  const iterationOf = (id) => ({ a: 10_000, b: 200 })[id];
  assert.equal(rows.pointsFor(["a:9900"], iterationOf), 20);
  assert.equal(rows.pointsFor(["a:9000"], iterationOf), 200);
  assert.equal(rows.pointsFor(["a:9900", "b:100"], iterationOf), 1000);
  assert.equal(rows.pointsFor(["a:9900", "b"], iterationOf), 2000);
});

test("a lowest value survives the thinning of rows", () => {
  const values = upTo(100).map((at) => (at === 37 ? -1 : at % 7));
  assert.ok(thinnedPlaces(values, 20).includes(37));
  assert.deepEqual(thinnedPlaces([1, null, 2], 20), [0, 1, 2]);
});

test("rows that the server does not have yet are not asked for again until the trial reports", () => {
  const rows = new Rows("loss", 2000);
  rows.take({ trials: {}, missing: { a: "The file is missing." } }, () => 3);
  assert.equal(rows.missing("a"), "The file is missing.");
  assert.deepEqual(rows.wanted(["a"], () => 3), []);
  assert.deepEqual(rows.wanted(["a"], () => 4), ["a"]);
  rows.take(answer(1, [1, 2, 3]), () => 5);
  assert.deepEqual(rows.wanted(["a"], () => 5), []);
});

test("a trial that has not reported is not asked for", () => {
  assert.deepEqual(new Rows("loss", 2000).wanted(["a"], () => 0), []);
});

const rowsOf = (values, more = {}) => ({ iteration: values.map((_, at) => at + 1), time_total_s: values.map((_, at) => at * 10), timestamp: values.map((_, at) => 1000 + at), values, starts: [], ...more });
const plain = { axis: "iteration", smooth: 0, logX: false, logY: false };

test("a log axis leaves out what it cannot show and counts it", () => {
  const [curve] = curves(["a"], () => rowsOf([1, 0, -2, 4]), { ...plain, logY: true });
  assert.deepEqual(curve.raw, [1, null, null, 4]);
  assert.equal(curve.dropped, 2);
});

test("rows without the metric are skipped, and points know their rows", () => {
  const [curve] = curves(["a"], () => rowsOf([1, null, 3]), { ...plain, axis: "time" });
  assert.deepEqual([curve.xs, curve.raw, curve.places], [[0, 20], [1, 3], [0, 2]]);
});

test("a restart is marked at the first point after the iteration that it continued from", () => {
  const [curve] = curves(["a"], () => rowsOf([9, 8, 7, 6], { starts: [{ iteration: 3, at: 5 }] }), plain);
  assert.deepEqual(curve.marks, [{ x: 3, y: 7, iteration: 3, at: 5 }]);
});

test("trials without rows make no curve", () => {
  assert.deepEqual(curves(["a", "b"], (id) => (id === "a" ? undefined : rowsOf([])), plain), []);
});

test("the y range of a zoom is that of the points inside", () => {
  const found = curves(["a"], () => rowsOf([100, 3, 2, 1]), plain);
  assert.deepEqual(ranges(found, null, {}), { x: [1, 4], y: [1, 100] });
  assert.deepEqual(ranges(found, { x: [2, 3], y: null }, {}), { x: [2, 3], y: [2, 3] });
});

test("many curves have fewer points each", () => {
  assert.ok(pointsEach(1, 1000) <= 1500);
  assert.ok(200 * pointsEach(200, 1200) <= 120_000);
  assert.ok(pointsEach(1000, 1200) >= 60);
});

test("a trial keeps its colour while it is shown", () => {
  const first = assigned(new Map(), ["a", "b", "c"]);
  const second = assigned(first, ["c", "d", "b"]);
  assert.deepEqual([...second], [["c", 2], ["b", 1], ["d", 0]]);
});

const same = axisMap([0, 100], [0, 100]);
const curveOf = (points) => ({ points, xs: points.map(([x]) => x) });

test("the nearest curve is found by the distance to its line", () => {
  const flat = curveOf([[0, 10], [100, 10]]);
  const steep = curveOf([[0, 90], [100, 50]]);
  assert.deepEqual(nearestCurve([flat, steep], same, same, 48, 14, 10), { at: 0, index: 0 });
  assert.equal(nearestCurve([flat, steep], same, same, 50, 72, 10).at, 1);
  assert.equal(nearestCurve([flat, steep], same, same, 50, 40, 10), null);
});

test("a gap in a curve is not under the pointer", () => {
  const gap = curveOf([[0, 10], [50, NaN], [100, 10]]);
  assert.equal(nearestCurve([gap], same, same, 30, 10, 5), null);
});

test("the nearest point, and the points inside of a lasso", () => {
  assert.equal(nearestPoint([[0, 0], null, [10, 10]], 8, 9, 5), 2);
  assert.equal(nearestPoint([[0, 0]], 8, 9, 5), -1);
  const triangle = [[0, 0], [10, 0], [0, 10]];
  assert.ok(isInside(triangle, [2, 2]) && !isInside(triangle, [8, 8]));
});
