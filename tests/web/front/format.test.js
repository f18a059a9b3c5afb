import assert from "node:assert/strict";
import { test } from "node:test";

import * as format from "../../../src/holdfast/web/static/js/format.js";

const table = (name, rows) =>
  test(`${name} is written for people`, () => {
    for (const [...values] of rows) {
      const expected = values.pop();
      assert.equal(format[name](...values), expected, `${name}(${values.join(", ")})`);
    }
  });

table("number", [
  [0, "0"], [1, "1"], [-3, "−3"], [12345, "12,345"], [0.1 + 0.2, "0.3"], [0.000123456, "0.00012346"], [1.5e-7, "1.5e-7"],
  [123.456789, "123.46"], [1234.56789, "1234.57"], [2.5e9 + 0.5, "2.5e9"], [NaN, "NaN"], [-Infinity, "−∞"], [1e20, "1e20"],
]);
table("duration", [
  [0, "0 s"], [0.0012, "1.2 ms"], [0.4, "0.4 s"], [9.96, "10 s"], [59.7, "1 min"], [125, "2 min 5 s"], [3600, "1 h"], [7800, "2 h 10 min"],
  [90000, "1 d 1 h"], [86399, "1 d"], [null, ""],
]);
table("ago", [[100, 100.5, "now"], [100, 112.9, "12 s ago"], [0, 3700, "1 h ago"], [0, 86400 * 3, "3 d ago"], [null, 5, ""], [110, 100, "now"]]);
table("left", [[3, "a few seconds left"], [44, "about 40 s left"], [170, "about 3 min left"], [5500, "about 1 h 30 min left"], [200000, "about 2 d 8 h left"], [null, ""]]);
table("bytes", [[0, "0 bytes"], [1, "1 byte"], [1000, "1 kB"], [1234567, "1.2 MB"], [999_999_999, "1 GB"], [12e15, "12 PB"], [null, ""]]);
table("percent", [[0, "0 %"], [0.001, "<1 %"], [0.999, "99 %"], [1, "100 %"], [null, ""]]);
table("plain", [[null, ""], [true, "True"], ["x", "x"], [{ a: [1] }, '{"a":[1]}'], [0.25, "0.25"]]);
table("sentence", [["it failed", "It failed."], ["ann (page) stopped it", "ann (page) stopped it."], ["Why?", "Why?"]]);
table("count", [[1, "trial", "1 trial"], [12000, "trial", "12,000 trials"]]);

test("a long text is shortened, and says so", () => {
  assert.deepEqual(format.shortened("x".repeat(5), 3), { text: "xxx…", isWhole: false });
  assert.deepEqual(format.shortened("xyz", 3), { text: "xyz", isWhole: true });
});

test("a configuration in a line has what the search varies", () => {
  const config = { lr: 0.01, model: { depth: 3 }, data: "d" };
  assert.equal(format.configLine(config, ["lr", "model/depth"]), "lr=0.01, model/depth=3");
  assert.equal(format.configLine({ data: "x".repeat(100) }), `data=${"x".repeat(40)}…`);
});

test("a nested configuration is flattened, whatever its names are", () => {
  const config = JSON.parse('{"a": {"b": 1, "__proto__": {"c": 2}}, "d": [1, {"e": 2}], "f": {}}');
  assert.deepEqual(Object.entries(format.flat(config)), [["a/b", 1], ["a/__proto__/c", 2], ["d", [1, { e: 2 }]], ["f", {}]]);
});

test("iterations are a range, or one, or none", () => {
  assert.equal(format.iterations(0, 3), "iterations 1 to 3");
  assert.equal(format.iterations(21, 22), "iteration 22");
  assert.equal(format.iterations(3, 3), "no iteration");
});
