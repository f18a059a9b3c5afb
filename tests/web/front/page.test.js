// Addresses, logs, configurations as they are typed, and comparisons.

import assert from "node:assert/strict";
import { test } from "node:test";

import { arranged } from "../../../src/holdfast/web/static/js/artifacts.js";
import { bestOf, jointId, jointRows, jointStore, rowsOf } from "../../../src/holdfast/web/static/js/compared.js";
import { configOf, jsonOf, textsOf } from "../../../src/holdfast/web/static/js/config_form.js";
import { compareView, comparedThings, hashOf, routeOf } from "../../../src/holdfast/web/static/js/route.js";
import { costOfPause } from "../../../src/holdfast/web/static/js/pausing.js";
import { Tail } from "../../../src/holdfast/web/static/js/tail.js";
import { failedTrials, stateOf, wordAt } from "../../../src/holdfast/web/static/js/words.js";
import { Store } from "../../../src/holdfast/web/static/js/store.js";
import { answerOf } from "./rig.js";

const KEY = "team a/<b>&?#%:,";

test("an address is read as it was written", () => {
  for (const route of [
    { page: "experiments", view: { q: "lr=1 & 2" } },
    { page: "experiment", key: KEY, view: { f: 'lr < 1 and opt == "a&b"', sel: "a,b" } },
    { page: "trial", key: KEY, trial: "x/y", view: {} },
    { page: "compare", view: compareView([{ key: KEY }, { key: KEY, trial: "a:b,c" }]) },
  ]) {
    const { view, ...rest } = routeOf(hashOf(route));
    const { view: expected, ...place } = route;
    assert.deepEqual(rest, place);
    assert.deepEqual({ ...view }, Object.fromEntries(Object.entries(expected).filter(([, text]) => text !== "")));
  }
});

test("what is compared is in the address", () => {
  const things = [{ key: KEY }, { key: "other" }, { key: KEY, trial: "a:b,c" }];
  assert.deepEqual(comparedThings(routeOf(hashOf({ page: "compare", view: compareView(things) })).view), things);
  assert.deepEqual(comparedThings({}), []);
});

test("a broken address is a page that says so", () => {
  assert.equal(routeOf("#/nowhere/at/all").page, "unknown");
  assert.equal(routeOf("#/e/%E0%A4%A").key, "%E0%A4%A");
  assert.equal(routeOf("").page, "experiments");
});

const piece = (offset, text, size = offset + text.length) => ({ offset, text, next: offset + text.length, size });

test("a log grows by what is new, and keeps its last part", () => {
  const tail = new Tail(30);
  assert.equal(tail.take(piece(0, "first line\n", 22)), true);
  assert.equal(tail.take(piece(11, "second line")), false);
  assert.equal(tail.text, "first line\nsecond line");
  tail.take(piece(22, "\nthird and last line\n"));
  assert.equal(tail.text, "third and last line\n");
  assert.equal(tail.isCut, true);
});

test("a log whose file became shorter replaces the old one, and says so", () => {
  const tail = new Tail();
  tail.take(piece(0, "old"));
  tail.take(piece(3, "er"));
  assert.equal(tail.isAnew, false);
  tail.take(piece(0, "new"));
  assert.equal(tail.text, "new");
  assert.equal(tail.isAnew, true);
});

test("a terminal's colours and a progress bar's earlier states are left out", () => {
  const tail = new Tail();
  tail.take(piece(0, "\u001b[31mred\u001b[0m\r\n10%\r50%\r"));
  assert.equal(tail.text, "red\n50%\r");
  tail.take(piece(tail.next, "99%\n"));
  assert.equal(tail.text, "red\n99%\n");
});

test("a search in a log finds each place, in capitals or not", () => {
  const tail = new Tail();
  tail.take(piece(0, "Loss loss LOSS"));
  assert.deepEqual(tail.find("loss"), [0, 5, 10]);
  assert.deepEqual(tail.find(""), []);
});

const SPACE = [
  { name: "lr", kind: "loguniform", choices: [] },
  { name: "model/depth", kind: "randint", choices: null },
  { name: "opt", kind: "choice", choices: ["adam", null, 3] },
  { name: "other", kind: "sample_from", choices: null },
];

test("the form of a configuration gives back what it was filled with", () => {
  const config = { lr: 0.001, model: { depth: 3 }, opt: null, other: { a: [1] } };
  assert.deepEqual(configOf(SPACE, textsOf(SPACE, config)), config);
  assert.deepEqual(configOf(SPACE, textsOf(SPACE, null)), {});
});

test("the form refuses what is not a number where one is needed", () => {
  assert.throws(() => configOf(SPACE, { lr: "fast" }), /lr must be a number. It is “fast”/);
  assert.throws(() => configOf(SPACE, { "model/depth": "1.5" }), /model\/depth must be a whole number/);
});

test("a name of an object's part is a name like others", () => {
  const config = configOf([{ name: "__proto__/x", kind: "uniform", choices: null }], Object.assign(Object.create(null), { "__proto__/x": "1" }));
  assert.equal(JSON.stringify(config), '{"__proto__":{"x":1}}');
});

test("JSON that is not an object is refused with a sentence", () => {
  assert.deepEqual(jsonOf('{"lr": 1}'), { lr: 1 });
  assert.throws(() => jsonOf("{lr: 1}"), /The config is not JSON/);
  assert.throws(() => jsonOf("[1]"), /The config must be an object/);
});

test("trials of two experiments are one store, and each is asked for its own rows", async () => {
  const things = [{ key: KEY, trial: { trial_id: "a", params: { lr: 1 } } }, { key: "other", trial: { trial_id: "a", params: { lr: 2 } } }];
  const [first, second] = things.map(({ key, trial }) => jointId(key, trial.trial_id));
  assert.deepEqual([...jointStore(things).params.lr], [1, 2]);
  const asked = [];
  const rows = jointRows(async (key, { trials, points }) => {
    asked.push([key, trials, points]);
    return { trials: { a: { from: 1 } }, missing: {} };
  });
  const answer = await rows("", { trials: [first, `${second}:120`], points: 9 });
  assert.deepEqual(asked, [[KEY, ["a"], 9], ["other", ["a:120"], 9]]);
  assert.deepEqual(Object.keys(answer.trials), [first, second]);
});

test("parameters that differ come first in a comparison", () => {
  const rows = rowsOf([{ same: 1, lr: 0.1 }, { same: 1, lr: 0.2, only: 3 }]);
  assert.deepEqual(rows.map(({ name, differs }) => [name, differs]), [["lr", true], ["only", true], ["same", false]]);
});

test("each state has a word and a symbol, also one that a later version may add", () => {
  assert.deepEqual(stateOf("TERMINATED", "pruned"), { word: "pruned", symbol: "pruned", tone: "dim" });
  assert.equal(stateOf("RUNNING", null, true).word, "pausing");
  assert.equal(stateOf("constructor").word, "constructor");
  for (const status of ["RUNNING", "STARTING", "PENDING"]) assert.equal(stateOf(status, "interrupted").word, "interrupted"); // its process is gone
  assert.equal(stateOf("PAUSED", "interrupted").word, "paused");
});

test("the best of several values are marked, and nothing is if all are equal", () => {
  assert.deepEqual(bestOf([0.3, 0.1, 0.2], "min"), [1]);
  assert.deepEqual(bestOf([0.3, 0.1, 0.3], "max"), [0, 2]);
  assert.deepEqual(bestOf([0.3, 0.3], "min"), []);
  assert.deepEqual(bestOf([0.3, undefined, NaN, "x"], "min"), []);
  assert.deepEqual(bestOf([0.3, 0.1], undefined), []);
});

const pausable = (...trials) => {
  const store = new Store(answerOf([]));
  store.apply({ version: 1, trials: trials.map((trial, at) => ({ trial_id: String(at), status: "RUNNING", ...trial })) });
  return costOfPause(store, store.ids);
};

test("what a pause at once costs is said before", () => {
  assert.match(pausable({ iteration: 15, checkpoint_iteration: 12 }).text, /^It continues from the checkpoint of iteration 12: iterations 13 to 15, and what .*, run again\.$/);
  assert.match(pausable({ iteration: 13, checkpoint_iteration: 12 }).text, /: iteration 13, and/);
  assert.match(pausable({ iteration: 12, checkpoint_iteration: 12 }).text, /12: what it has trained since then runs again\.$/);
  assert.match(pausable({ iteration: 2 }).text, /^It has no checkpoint: it starts over, and iterations 1 to 2, and/);
  assert.match(pausable({ iteration: 0, status: "STARTING" }).text, /^It has not reported yet: it starts over\.$/);
  assert.match(pausable({ iteration: 5, checkpoint_iteration: 3 }, { iteration: 4 }).text, /: 6 reported iterations altogether\. 1 of them has no checkpoint and starts over\.$/);
  assert.match(pausable({ iteration: 1 }, { iteration: 4 }).text, /None of them has a checkpoint: they start over\.$/);
});

test("a trial that waits loses nothing by a pause", () => {
  assert.deepEqual(pausable({ status: "PENDING", iteration: 3, checkpoint_iteration: 2 }), { running: [], text: "" });
});

test("a trial that failed for two causes counts once", () => {
  assert.equal(failedTrials([{ trials: 2, trial_ids: ["a", "b"] }, { trials: 1, trial_ids: ["b"] }]), 2);
  assert.equal(failedTrials([{ trials: 250, trial_ids: ["a", "b"] }]), 250); // the server names some
});

test("a file of a trial is an image or in the list, and never both", () => {
  const files = (n, isImage) => Array.from({ length: n }, (_, at) => ({ path: `${isImage ? "image" : "text"}_${at}`, is_image: isImage }));
  const few = arranged([...files(11, true), ...files(2, false)], false);
  assert.deepEqual(few.images.map(({ path }) => path).slice(-2), ["image_9", "image_10"]);
  assert.deepEqual(few.files.map(({ path }) => path), ["text_0", "text_1"]);
  assert.equal(few.hasMore, false);
  const many = [...files(15, true), ...files(30, false)];
  const [first, all] = [arranged(many, false), arranged(many, true)];
  assert.deepEqual([first.images.length, first.files.length, first.hasMore], [12, 20, true]);
  assert.deepEqual([all.images.length, all.files.length], [15, 30]);
});

test("a trial that never began waits only while a process runs its experiment", () => {
  const store = new Store(answerOf([{ status: "PENDING" }]));
  let told = 0;
  store.subscribe(() => (told += 1));
  assert.equal(wordAt(store, 0), "queued");
  const before = store.changedAt(store.ids[0]);
  store.isLive = false;
  assert.equal(wordAt(store, 0), "not started");
  assert.ok(told === 1 && store.changedAt(store.ids[0]) > before);
});

test("what ended a trial has the word that the terminal and JSON have", () => {
  for (const reason of ["finished", "pruned", "stopped", "stopper", "budget", "user"]) assert.equal(stateOf("TERMINATED", reason).word, reason);
  assert.equal(stateOf("ERROR", "failed").word, "failed");
  assert.equal(stateOf("RUNNING", "interrupted").word, "interrupted");
});
