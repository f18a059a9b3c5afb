import assert from "node:assert/strict";
import { test } from "node:test";

import { completions, filtered, filterOf, FilterError, quotedName } from "../../../src/holdfast/web/static/js/filter.js";
import { Store } from "../../../src/holdfast/web/static/js/store.js";
import { answerOf, store, TRIALS } from "./rig.js";

const passing = (text, trials = store()) => {
  const { positions, error } = filtered(trials, text);
  assert.equal(error, null, error?.message);
  return positions.map((at) => trials.ids[at]);
};

const errorOf = (text) => {
  try {
    filterOf(text, store());
  } catch (error) {
    assert.ok(error instanceof FilterError, String(error));
    return error;
  }
  return assert.fail(`${text} was accepted`);
};

test("each operator compares a column with a value", () => {
  assert.deepEqual(passing("lr < 0.01"), ["c3", "12e45678"]);
  assert.deepEqual(passing("lr <= 1e-2"), ["b2", "c3", "12e45678"]);
  assert.deepEqual(passing("lr > .01"), ["a1"]);
  assert.deepEqual(passing("lr >= 0.01"), ["a1", "b2"]);
  assert.deepEqual(passing("lr == 0.1"), ["a1"]);
  assert.deepEqual(passing("opt != adam"), ["b2", "12e45678"]);
});

test("and binds more tightly than or, and parentheses change that", () => {
  assert.deepEqual(passing("opt == adam or lr < 0.005 and loss < 0.3"), ["a1", "c3", "12e45678"]);
  assert.deepEqual(passing("(opt == adam or lr < 0.005) and loss < 0.3"), ["12e45678"]);
  assert.deepEqual(passing("not (opt == adam) and not lr == 0.01"), ["12e45678"]);
});

test("a state is named by its status or by the word that the table shows", () => {
  assert.deepEqual(passing('status == "ERROR"'), ["b2"]);
  assert.deepEqual(passing("status == failed"), ["b2"]);
  assert.deepEqual(passing("status in [running, pruned]"), ["c3", "12e45678"]);
  assert.deepEqual(passing("status == TERMINATED"), ["a1", "12e45678"]);
});

test("a state is the word that the table shows, and nothing else", () => {
  const trials = new Store(answerOf([
    { trial_id: "cut", status: "RUNNING", stop_reason: "interrupted" },
    { trial_id: "runs", status: "RUNNING" },
  ]));
  trials.apply({ version: 2, trials: [{ trial_id: "leaves", status: "RUNNING", pausing: true }] });
  assert.deepEqual(passing("status == running", trials), ["runs"]);
  assert.deepEqual(passing('status == "Running"', trials), ["runs"]);
  assert.deepEqual(passing("running", trials), ["runs"]);
  assert.deepEqual(passing("status != running", trials), ["cut", "leaves"]);
  assert.deepEqual(passing("status in [interrupted, pausing]", trials), ["cut", "leaves"]);
  assert.deepEqual(passing("status contains run", trials), ["runs"]);
  assert.deepEqual(passing("status == RUNNING", trials), ["cut", "runs", "leaves"]); // as --json names it
  assert.deepEqual(passing("RUNNING", trials), ["cut", "runs", "leaves"]);
});

test("in, contains and is missing", () => {
  assert.deepEqual(passing('opt in ["adam"]'), ["a1", "c3"]);
  assert.deepEqual(passing("opt not in (adam, rmsprop)"), ["b2", "12e45678"]);
  assert.deepEqual(passing('error contains "cuda"'), ["b2"]);
  assert.deepEqual(passing("note is not missing"), ["c3"]);
  assert.deepEqual(passing("loss is missing"), ["b2"]);
  const trials = new Store(answerOf(TRIALS.map((trial) => ({ note: "", ...trial }))));
  assert.deepEqual(passing("note is not missing", trials), ["c3"]); // the server sends "" for a trial without a note
  assert.deepEqual(passing('note != ""', trials), ["c3"]);
});

test("#N is the trial of that number, as the page writes it", () => {
  assert.deepEqual(passing("#1"), ["b2"]);
  assert.deepEqual(passing("#0 or #3"), ["a1", "12e45678"]);
  assert.deepEqual(passing("#17"), []);
});

test("texts are equal whatever their case, and a number is no text", () => {
  assert.deepEqual(passing("opt == sgd"), ["b2", "12e45678"]);
  assert.deepEqual(passing("opt < 3"), []);
});

test("NaN is neither smaller nor larger than a number, and equals itself", () => {
  assert.deepEqual(passing("value < 1"), ["a1", "12e45678"]);
  assert.deepEqual(passing("loss == nan"), ["c3"]);
});

test("a column is compared with another one", () => {
  assert.deepEqual(passing("loss < `val loss`"), ["12e45678"]);
  assert.deepEqual(passing("metrics/loss == value"), ["a1", "c3", "12e45678"]);
});

test("a word alone is looked for in ids, states, notes and errors", () => {
  assert.deepEqual(passing("odd"), ["c3"]);
  assert.deepEqual(passing("pruned"), ["12e45678"]);
  assert.deepEqual(passing('"out of memory" or 12e4'), ["b2", "12e45678"]);
});

test("an id that reads as a number is compared as a text", () => {
  assert.deepEqual(passing("id == 12e45678"), ["12e45678"]);
});

test("each error says what is wrong and where", () => {
  for (const [text, message, at] of [
    ["lrr < 1", "There is no column “lrr”. Did you mean “lr”?", 0],
    ["lr <", "The filter ends too early: a value is missing.", 4],
    ["(lr < 1", "A “)” is missing.", 7],
    ["lr < 1 opt == 2", "“opt” is one too many. Join two tests with “and” or “or”.", 7],
    ["1 < lr", "A column stands on the left: lr < 0.01.", 0],
    ['opt == "adam', 'The quote " has no end.', 7],
    ["opt in adam", "After “in” comes a list: optimizer in [adam, sgd].", 7],
    ["opt in [adam sgd]", "A “,” or “]” is missing.", 13],
    ["opt is 3", "After “is” comes “missing” or “not missing”.", 7],
    ["opt not 3", "After “not” comes “in” or “contains”.", 8],
    ["lr < and", "A value is expected: a number, or a text in quotes.", 5],
    ["< 3", "A column or a text is expected, but here is “<”.", 0],
    [`${"(".repeat(5000)}lr`, "The filter is nested too deeply.", 100],
  ]) {
    const error = errorOf(text);
    assert.deepEqual([error.message, error.at], [message, at]);
  }
});

test("with an error all trials are shown", () => {
  const { positions, error } = filtered(store(), "lr <");
  assert.equal(positions.length, 4);
  assert.ok(error instanceof FilterError);
});

test("names of an experiment may be those of objects, or have any characters", () => {
  const odd = new Store(answerOf([{ trial_id: "x", params: { constructor: 1, __proto__x: 2, "a b": 3, 'say "hi"': 4 } }, { trial_id: "y", params: { constructor: 5 } }]));
  assert.deepEqual(passing("constructor > 2", odd), ["y"]);
  assert.deepEqual(passing("`a b` == 3", odd), ["x"]);
  assert.deepEqual(passing('`say "hi"` == 4', odd), ["x"]);
  assert.match(filtered(odd, "toString == 1").error.message, /no column “toString”/);
});

test("a name is quoted where the filter would read something else", () => {
  const trials = new Store(answerOf([{ trial_id: "x", params: { status: 1, "a b": 2, in: 3, lr: 4, 7: 5 } }]));
  for (const key of trials.keys) assert.equal(trials.keyOf(quotedName(key, trials).replace(/`/g, "")), key);
  assert.equal(quotedName("config/status", trials), "config/status");
  assert.equal(quotedName("config/a b", trials), "`a b`");
  assert.equal(quotedName("config/in", trials), "`in`");
  assert.equal(quotedName("config/7", trials), "`7`");
});

test("hints follow what is typed: columns, operators, values, and or", () => {
  const words = (text) => completions(text, text.length, store()).map(({ text: word }) => word);
  assert.ok(words("l").includes("lr") && words("l").includes("loss"));
  assert.deepEqual(words("lr ").slice(0, 3), ["<", "<=", ">"]);
  assert.deepEqual(words("opt == "), ['"adam"', '"sgd"', '"SGD"']);
  assert.deepEqual(words("status in [ru"), ["running", "pruned"]);
  assert.deepEqual(words("lr < 0.1 "), ["and", "or"]);
  assert.equal(completions("lr < 0.1 and lo", 15, store())[0].from, 13);
});

test("ten thousand trials are filtered in the time of a frame or two", () => {
  const many = new Store(answerOf(Array.from({ length: 10_000 }, (_, at) => ({ trial_id: `t${at}`, index: at, status: "TERMINATED", params: { lr: at / 10_000 } }))));
  const begun = process.cpuUsage();
  assert.equal(filtered(many, "lr < 0.5 and status == finished or index > 9998").positions.length, 5001);
  assert.ok(process.cpuUsage(begun).user < 500_000);
});
