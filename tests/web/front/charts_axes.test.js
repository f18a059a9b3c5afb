// Axes: numbers, ticks, columns, colours, tables.

import assert from "node:assert/strict";
import { test } from "node:test";
import { colors, mixed, shareOf } from "../../../src/holdfast/web/static/js/charts/pure/colors.js";
import { csv } from "../../../src/holdfast/web/static/js/charts/pure/csv.js";
import { axisKeys, bestIds, categoriesOf, dimension, modeOf, OTHER, placeOn } from "../../../src/holdfast/web/static/js/charts/pure/dimensions.js";
import { lineOf, parallelAxes } from "../../../src/holdfast/web/static/js/charts/pure/lanes.js";
import { duration, number, short, timeUnit } from "../../../src/holdfast/web/static/js/charts/pure/numbers.js";
import { plot } from "../../../src/holdfast/web/static/js/charts/pure/plot.js";
import { axisMap, extent, padded, scaled, ticks, zoomed } from "../../../src/holdfast/web/static/js/charts/pure/scales.js";
import { inUnit, prepared, timeTicks } from "../../../src/holdfast/web/static/js/charts/pure/ticks.js";
import { Store } from "../../../src/holdfast/web/static/js/store.js";

test("numbers of the server's JSON", () => {
  assert.deepEqual([number(1.5), number("NaN"), number("-Infinity"), number("adam"), number(null)], [1.5, NaN, -Infinity, null, null]);
});

test("numbers are short and exact enough", () => {
  assert.deepEqual([0, 0.0123456, 1234567, 1.2e-7, 12345678, NaN, -Infinity, null, "adam", true].map(short), ["0", "0.01235", "1,234,567", "1.2e-7", "1.235e7", "NaN", "−∞", "–", "adam", "true"]);
});

test("durations have two units at most", () => {
  assert.deepEqual([0.123, 45, 61, 3600, 11_520, 90_000].map(duration), ["0.12 s", "45 s", "1 min 1 s", "1 h", "3 h 12 min", "1 d 1 h"]);
});

test("the unit of a time axis follows from its length", () => {
  assert.deepEqual([30, 300, 9000, 400_000].map((span) => timeUnit(span).name), ["s", "min", "h", "d"]);
  assert.equal(inUnit("training time", 600).title, "training time (min)");
});

test("linear ticks are round and inside", () => {
  assert.deepEqual(ticks([0.13, 0.97], false, 5), [0.2, 0.4, 0.6, 0.8]);
});

test("log ticks are powers of ten, with values between them in a short range", () => {
  assert.deepEqual(ticks([1e-5, 1], true, 6), [1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1]);
  assert.deepEqual(ticks([1, 100], true, 6), [1, 2, 5, 10, 20, 50, 100]);
  assert.deepEqual(ticks([2, 4], true, 4), [2, 2.5, 3, 3.5, 4]);
  assert.ok(ticks([1e-30, 1e30], true, 6).length <= 7);
});

test("ticks of a range that a zoom has made tiny", () => {
  const found = ticks([0.123456, 0.123457], false, 4);
  assert.ok(found.length >= 2 && found.every((tick) => tick >= 0.123456 && tick <= 0.123457));
});

test("the extent ignores what an axis cannot show", () => {
  assert.deepEqual(extent([3, NaN, null, Infinity, 1]), [1, 3]);
  assert.deepEqual(extent([0, -1, 10], true), [10, 10]);
  assert.equal(extent([null]), null);
  assert.deepEqual(padded([5, 5]), [4.5, 5.5]);
  assert.deepEqual(padded([0, 0]), [-1, 1]);
});

test("axis maps invert each other, also for logarithms", () => {
  for (const log of [false, true]) {
    const map = axisMap([1, 1000], [20, 520], log);
    for (const value of [1, 30, 1000]) assert.ok(Math.abs(map.value(map.pixel(value)) - value) < 1e-9);
  }
  assert.deepEqual(zoomed(axisMap([0, 10], [0, 100]), [70, 30]), [3, 7]);
  assert.deepEqual(scaled([0, 10], 0.5), [2.5, 7.5]);
});

test("ticks of time are round local times", () => {
  const found = timeTicks([1_795_722_800, 1_795_730_000], 8);
  assert.ok(found.length >= 3 && found.length <= 9);
  assert.ok(found.every(({ value, text }) => value % 900 === 0 && /^\d\d:\d\d$/.test(text)));
  assert.match(timeTicks([1_795_000_000, 1_797_000_000], 6)[0].text, /^\d\d-\d\d$/);
});

test("an axis without values still has a range", () => {
  assert.ok(prepared({ kind: "number", range: null, title: "loss" }, 5).ticks.length > 0);
  assert.ok(prepared({ kind: "number", range: null, log: true, title: "loss" }, 5).ticks.length > 0);
});

test("a plot leaves room for the labels of y, and gives ECharts logarithms", () => {
  const theme = { line: "", dim: "", faint: "", text: "" };
  const place = plot({ size: { width: 600, height: 300 }, theme, x: { kind: "number", range: [0, 10] }, y: { kind: "number", range: [1e-5, 1], log: true } });
  assert.ok(place.rect.left > 20 && place.rect.left < 100);
  assert.ok(place.yAxis.min < -5 && place.yAxis.max > 0);
  assert.equal(place.forward.y(0.01), -2);
  assert.ok(Number.isNaN(place.forward.y(0)));
  assert.equal(place.y.pixel(1e-5) > place.y.pixel(1), true);
});

const answer = {
  version: 1,
  ids: ["a", "b", "c"],
  columns: { index: [0, 1, 2], name: ["a", "b", "c"], status: ["TERMINATED", "ERROR", "RUNNING"], iteration: [3, 0, 2], value: [0.5, null, "NaN"] },
  params: { lr: [0.1, 0.01, 0.001], optimizer: ["sgd", null, "adam"], fixed: [1, 1, 1] },
  metrics: { loss: [0.5, null, "NaN"], acc: [0.1, null, 0.9] },
};
const facts = { metric: "loss", mode: "min", goals: {}, varied: ["lr", "optimizer"], metrics: ["loss", "acc"], space: [{ name: "lr", log: true }] };

test("the columns that can be an axis: the goal first, then varied parameters", () => {
  const keys = axisKeys(new Store(answer), facts);
  assert.deepEqual(keys.slice(0, 5), ["metrics/loss", "config/lr", "config/optimizer", "metrics/acc", "config/fixed"]);
  assert.ok(keys.includes("iteration"));
});

test("an axis is logarithmic where the space says so, unless the user says otherwise", () => {
  const store = new Store(answer);
  assert.equal(dimension(store, facts, "config/lr").log, true);
  assert.equal(dimension(store, facts, "config/lr", false).log, false);
  assert.deepEqual(dimension(store, facts, "config/lr").range, [0.001, 0.1]);
});

test("texts are categories, and a missing value has no place", () => {
  const dim = dimension(new Store(answer), facts, "config/optimizer");
  assert.deepEqual([dim.kind, dim.categories], ["category", ["adam", "sgd"]]);
  assert.deepEqual(dim.values.map((value) => placeOn(dim, value)), [1, null, 0]);
});

test("of too many categories the most frequent stay", () => {
  const values = Array.from({ length: 200 }, (_, at) => `c${at}`).concat(["c7", "c7"]);
  const found = categoriesOf(values);
  assert.equal(found.length, 40);
  assert.deepEqual([found[0], found.at(-1)], ["c7", OTHER]);
  assert.equal(placeOn({ kind: "category", categories: found }, "c199"), 39);
});

test("the best trials have finite values", () => {
  assert.deepEqual(bestIds(new Store(answer), "min", 5), ["a"]);
  assert.equal(modeOf(facts, "metrics/loss"), "min");
  assert.equal(modeOf(facts, "config/loss"), null);
});

test("lines of parallel coordinates pass missing values on a place of their own", () => {
  const store = new Store(answer);
  const dims = ["config/lr", "config/optimizer", "metrics/loss"].map((key) => dimension(store, facts, key));
  const axes = parallelAxes(dims, { width: 900, height: 400 }, false, ({ key }) => key === "metrics/loss");
  const [first, second] = [lineOf(axes, 0, false), lineOf(axes, 1, false)];
  assert.deepEqual(first.map(([x]) => x), axes.map(({ at }) => at));
  assert.equal(axes[0].missing, null);
  assert.equal(second[1][1], axes[1].missing);
  assert.equal(second[2][1], axes[2].missing);
  assert.ok(axes[2].missing > Math.max(axes[2].from, axes[2].to));
  assert.ok(lineOf(parallelAxes(dims, { width: 360, height: 400 }, true), 0, true).every(([x]) => x > 0 && x < 360));
});

test("an axis whose least value is the best has it at the top", () => {
  const values = [0.1, 0.9];
  const dim = { key: "metrics/loss", kind: "number", log: false, values, range: [0.1, 0.9] };
  const [axis] = parallelAxes([dim], { width: 500, height: 400 }, false, () => true);
  assert.ok(axis.pixel(0.1, 0) < axis.pixel(0.9, 1));
});

test("the best value stands out most in both themes", () => {
  assert.equal(mixed(colors("light", "min"), 0), mixed(colors("light", "max"), 1));
  assert.equal(mixed(["#000000", "#ffffff"], 0.5), "#808080");
  assert.equal(shareOf(10, [1, 100], true), 0.5);
  assert.equal(shareOf(3, [3, 3]), 0.5);
});

test("CSV quotes what it must, and a spreadsheet runs none of it", () => {
  const text = csv({ columns: ["name", "a,b"], rows: [['say "hi"', -1], ["=1+1", null], ["-5", "x\ny"]] });
  assert.equal(text, 'name,"a,b"\r\n"say ""hi""",-1\r\n\'=1+1,\r\n-5,"x\ny"\r\n');
  // A paste makes several cells of one that has a tab or a line.
  const hidden = csv({ columns: ["x\t=A1", "+1;=2"], rows: [["a\n=B1", "-1e-3"], ["a-b", "1;2"]] });
  assert.equal(hidden, '"x\t\'=A1","\'+1;\'=2"\r\n"a\n\'=B1",-1e-3\r\na-b,"1;2"\r\n');
});

test("an axis of whole numbers has no ticks between them, unless nothing else is in sight", () => {
  const texts = (range) => prepared({ kind: "number", range, zoom: range, whole: true }, 8).ticks.map(({ text }) => text);
  assert.deepEqual(texts([1, 3]), ["1", "2", "3"]);
  assert.ok(texts([1.2, 1.8]).length > 1);
});
