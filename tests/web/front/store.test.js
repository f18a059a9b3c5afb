import assert from "node:assert/strict";
import { test } from "node:test";

import { compared, sorted, Store } from "../../../src/holdfast/web/static/js/store.js";
import { answerOf, store, TRIALS } from "./rig.js";

const order = (trials, key, descending) => sorted(trials, trials.ids.map((_, at) => at), key, descending).map((at) => trials.ids[at]);

test("numbers that JSON does not have are decoded, in values, metrics and parameters", () => {
  const trials = new Store(answerOf([{ trial_id: "x", value: "Infinity", params: { lr: "-Infinity" }, metrics: { loss: "NaN" } }]));
  assert.equal(trials.value("x", "value"), Infinity);
  assert.equal(trials.value("x", "config/lr"), -Infinity);
  assert.ok(Number.isNaN(trials.value("x", "metrics/loss")));
});

test("a text that names a part of an object stays a text", () => {
  const trials = new Store(answerOf([{ trial_id: "x", params: { opt: "constructor" } }]));
  assert.equal(trials.value("x", "config/opt"), "constructor");
});

test("an event changes the trials that it names, and only those", () => {
  const trials = store();
  trials.apply({ version: 7, trials: [{ ...TRIALS[2], iteration: 5, value: 0.1, metrics: { loss: 0.1, new: 1 } }] });
  assert.equal(trials.serverVersion, 7);
  assert.equal(trials.value("c3", "iteration"), 5);
  assert.equal(trials.value("c3", "metrics/new"), 1);
  assert.equal(trials.value("a1", "metrics/new"), null);
  assert.equal(trials.value("a1", "iteration"), 10);
  assert.equal(trials.size, 4);
});

test("a trial that an event brings first is the last one, with a value or null in each column", () => {
  const trials = store();
  trials.apply({ version: 2, trials: [{ trial_id: "new", index: 4, status: "PENDING", params: { lr: 1, depth: 3 } }] });
  assert.equal(trials.position("new"), 4);
  for (const key of trials.keys) assert.equal(trials.column(key).length, 5, key);
  assert.equal(trials.value("new", "config/depth"), 3);
  assert.equal(trials.value("a1", "config/depth"), null);
});

test("a parameter of any name is a column", () => {
  const trials = new Store(answerOf([]));
  trials.apply({ version: 1, trials: [JSON.parse('{"trial_id": "x", "params": {"__proto__": 3, "constructor": 4}}')] });
  assert.equal(trials.value("x", "config/__proto__"), 3);
  assert.equal(trials.value("x", "config/constructor"), 4);
  assert.equal(trials.column("config/toString"), undefined);
});

test("a load replaces everything", () => {
  const trials = store();
  trials.load(answerOf([{ trial_id: "z", index: 0 }], 3));
  assert.deepEqual(trials.ids, ["z"]);
  assert.equal(trials.position("a1"), -1);
  assert.equal(trials.serverVersion, 3);
});

test("the best has the smallest or largest value, and NaN is neither", () => {
  assert.equal(store().best("min"), "12e45678");
  assert.equal(store().best("max"), "a1");
  assert.equal(store().best(null), null);
  const fresh = new Store(answerOf([{ trial_id: "a", value: 0.2 }, { trial_id: "b", value: 0.1 }, { trial_id: "c", value: 0, confirms: "b" }]));
  assert.equal(fresh.leader({ mode: "min" }), "b");
  assert.equal(fresh.leader({ mode: "min", confirmed: [{ trial_id: "b", mean: null }] }), "b");
  assert.equal(fresh.leader({ mode: "min", confirmed: [{ trial_id: "a", mean: 0.3 }] }), "a");
  assert.equal(new Store(answerOf([{ trial_id: "x", value: "NaN" }])).best("min"), null);
});

test("a rank counts those that are better", () => {
  assert.equal(store().rank("a1", "min"), 2);
  assert.equal(store().rank("a1", "max"), 1);
  assert.equal(store().rank("c3", "min"), null);
});

test("counts are by status", () => {
  assert.deepEqual(store().counts(), { TERMINATED: 2, ERROR: 1, RUNNING: 1 });
});

test("a name means the trial's own column, else a parameter, else a metric", () => {
  const trials = new Store(answerOf([{ trial_id: "x", params: { status: 1, loss: 2 }, metrics: { loss: 3, acc: 4 } }]));
  assert.equal(trials.keyOf("status"), "status");
  assert.equal(trials.keyOf("loss"), "config/loss");
  assert.equal(trials.keyOf("acc"), "metrics/acc");
  assert.equal(trials.keyOf("metrics/loss"), "metrics/loss");
  assert.equal(trials.keyOf("nothing"), undefined);
});

test("what is missing is last in both directions", () => {
  assert.deepEqual(order(store(), "value", false), ["12e45678", "a1", "b2", "c3"]);
  assert.deepEqual(order(store(), "value", true), ["a1", "12e45678", "b2", "c3"]);
});

test("numbers in texts are in the order of numbers, and numbers are before texts", () => {
  assert.ok(compared("layer2", "layer10") < 0);
  assert.ok(compared(3, "2") < 0);
  assert.equal(compared(null, NaN), 0);
});

test("listeners hear of changes and of the hovered trial until they leave", () => {
  const trials = store();
  const heard = [];
  const leave = trials.subscribe(() => heard.push(trials.hovered));
  trials.hover("a1");
  trials.hover("a1");
  trials.apply({ version: 2, trials: [] });
  leave();
  trials.hover(null);
  assert.deepEqual(heard, ["a1", "a1"]);
});

test("what all ids begin with is known, up to a mark", () => {
  const ids = (...all) => new Store(answerOf(all.map((trial_id) => ({ trial_id }))));
  assert.equal(ids("87cb3_00001", "87cb3_00017").sharedStart, "87cb3_000");
  assert.equal(ids("87cb3_00011", "87cb3_00017").sharedStart, "87cb3_000");
  assert.equal(ids("a-b-1", "a-c-1").sharedStart, "a-");
  assert.equal(ids("12e45678", "12e45679").sharedStart, "");
  assert.equal(ids().sharedStart, "");
  const trials = ids("87cb3_00001");
  assert.equal(trials.sharedStart, "87cb3_0000");
  trials.apply({ version: 2, trials: [{ trial_id: "fffff_00002" }] });
  assert.equal(trials.sharedStart, "");
});

test("a failed trial can be the best, and of equal ones it is the first", () => {
  const trials = new Store(answerOf([{ trial_id: "x", status: "ERROR", value: 0.1 }, { trial_id: "y", value: 0.1 }, { trial_id: "z", value: 0.2 }]));
  assert.equal(trials.best("min"), "x");
});

test("a store knows with which of its versions a trial changed last", () => {
  const store = new Store({ version: 1, ids: ["a", "b"], columns: {}, params: {}, metrics: {} });
  const loaded = store.version;
  assert.deepEqual([store.changedAt("a"), store.changedAt("b")], [loaded, loaded]);
  store.apply({ version: 2, trials: [{ trial_id: "b", iteration: 3, params: {}, metrics: {} }] });
  assert.deepEqual([store.changedAt("a"), store.changedAt("b")], [loaded, store.version]);
});
