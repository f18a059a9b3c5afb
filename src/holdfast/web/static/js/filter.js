// The filter of the table of trials: `lr < 0.01 and status == "ERROR"`. No DOM in here.
//
// either:     both ("or" both)*
// both:       negated ("and" negated)*
// negated:    "not" negated | "(" either ")" | test
// test:       name OPERATOR value | name ["not"] "in" "[" value, ... "]" | name ["not"] "contains" value
//             | name "is" ["not"] "missing" | text
// name:       a column, `config/lr`, or in backticks if it has other characters
// value:      a number, a text in quotes, a word, true, false
// text:       a word or a text in quotes: it is looked for in the id, the name, the state, the note and the error; #7 is trial 7
// A state is the word that the table shows, or the status in capitals as in --json.

import { COLUMNS } from "./store.js";
import { wordAt } from "./words.js";

const KEYWORDS = ["and", "or", "not", "in", "contains", "is", "missing"];
const SEARCHED = ["id", "name", "stop_reason", "note", "error", "node"];
const DEEPEST = 100;

/** Why a filter cannot be used; `at` is where in the text. */
export class FilterError extends Error {
  constructor(message, at) {
    super(message);
    this.at = at;
  }
}

function tokensOf(text) {
  const pattern = /\s*(?:(?<number>[-+−]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w/.]))|(?<quoted>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|`(?<name>[^`]+)`|(?<operator><=|>=|==|!=|<|>|=)|(?<mark>[()[\],])|(?<word>[^\s()[\],<>=!"'`]+))/uy;
  const tokens = [];
  let at = 0;
  while (text.slice(at).trim() !== "") {
    pattern.lastIndex = at;
    const found = pattern.exec(text);
    const start = at + text.slice(at).search(/\S/);
    if (found === null) throw new FilterError(unreadable(text, start), start);
    const [kind, value] = Object.entries(found.groups).find(([, group]) => group !== undefined);
    tokens.push(token(kind, value, start, pattern.lastIndex));
    at = pattern.lastIndex;
  }
  return tokens;
}

function unreadable(text, at) {
  const mark = text[at];
  if (`"'\``.includes(mark)) return `The quote ${mark} has no end.`;
  return `“${mark}” cannot be read here.`;
}

function token(kind, value, start, end) {
  if (kind === "number") return { kind, value: Number(value.replace("−", "-")), start, end };
  if (kind === "quoted") return { kind: "text", value: value.slice(1, -1).replace(/\\(.)/g, "$1"), start, end };
  const lower = value.toLowerCase();
  if (kind === "word" && KEYWORDS.includes(lower)) return { kind: "keyword", value: lower, start, end };
  return { kind, value, start, end };
}

class Parser {
  constructor(text, store) {
    this.text = text;
    this.store = store;
    this.tokens = tokensOf(text);
    this.at = 0;
    this.depth = 0;
  }

  parsed() {
    const test = this.either();
    const rest = this.peek();
    if (rest) this.fail(`“${this.text.slice(rest.start, rest.end)}” is one too many. Join two tests with “and” or “or”.`);
    return test;
  }

  either() {
    const tests = [this.both()];
    while (this.takes("keyword", "or")) tests.push(this.both());
    return tests.length === 1 ? tests[0] : (at) => tests.some((test) => test(at));
  }

  both() {
    const tests = [this.negated()];
    while (this.takes("keyword", "and")) tests.push(this.negated());
    return tests.length === 1 ? tests[0] : (at) => tests.every((test) => test(at));
  }

  negated() {
    if (++this.depth > DEEPEST) this.fail("The filter is nested too deeply.");
    let test;
    if (this.takes("keyword", "not")) {
      const inner = this.negated();
      test = (at) => !inner(at);
    } else if (this.takes("mark", "(")) {
      test = this.either();
      if (!this.takes("mark", ")")) this.fail("A “)” is missing.");
    } else {
      test = this.test();
    }
    this.depth -= 1;
    return test;
  }

  test() {
    const first = this.next("a column or a text");
    if (first.kind !== "word" && first.kind !== "name" && first.kind !== "text" && first.kind !== "number") {
      this.at -= 1;
      this.fail(`A column or a text is expected, but here is “${this.text.slice(first.start, first.end)}”.`);
    }
    const follows = this.peek();
    const hasTest = follows && (follows.kind === "operator" || (follows.kind === "keyword" && ["in", "contains", "is", "not"].includes(follows.value)));
    if (!hasTest) return this.search(first);
    if (first.kind === "number") this.fail("A column stands on the left: lr < 0.01.", first);
    const key = this.store.keyOf(first.value);
    return this.comparison(this.values(first), COLUMNS[key] === "text", key === "status");
  }

  /** `isOwnText`: a column of each trial, where no note is an empty text. A parameter may well be an empty text. */
  comparison(values, isOwnText, isState) {
    const operator = this.takes("operator");
    if (operator) return compareWith(values, operator.value, this.operand(isState));
    if (this.takes("keyword", "is")) {
      const isNegated = Boolean(this.takes("keyword", "not"));
      if (!this.takes("keyword", "missing")) this.fail("After “is” comes “missing” or “not missing”.");
      return (at) => (isMissing(values(at)) || (isOwnText && values(at) === "")) !== isNegated;
    }
    const isNegated = Boolean(this.takes("keyword", "not"));
    const test = this.takes("keyword", "in") ? this.isIn(values, isState) : this.contains(values);
    return isNegated ? (at) => !test(at) : test;
  }

  isIn(values, isState) {
    const open = this.takes("mark", "[") ?? this.takes("mark", "(");
    if (!open) this.fail("After “in” comes a list: optimizer in [adam, sgd].");
    const close = open.value === "[" ? "]" : ")";
    const tests = [];
    while (!this.takes("mark", close)) {
      tests.push(compareWith(values, "==", this.operand(isState)));
      if (!this.takes("mark", ",") && this.peek()?.value !== close) this.fail(`A “,” or “${close}” is missing.`);
    }
    return (at) => tests.some((test) => test(at));
  }

  contains(values) {
    if (!this.takes("keyword", "contains")) this.fail("After “not” comes “in” or “contains”.");
    const part = textOf(this.operand()(0)).toLowerCase();
    return (at) => !isMissing(values(at)) && textOf(values(at)).toLowerCase().includes(part);
  }

  /** The right side: a value, or another column. A word beside a state is one: `pausing` is a column, too. */
  operand(isState = false) {
    const token = this.next("a value");
    if (token.kind === "number") return Object.assign(() => token.value, { raw: this.text.slice(token.start, token.end) });
    if (token.kind === "text") return () => token.value;
    if (token.kind === "name") return this.values(token);
    if (token.kind !== "word") {
      this.at -= 1;
      this.fail("A value is expected: a number, or a text in quotes.");
    }
    if (isState) return () => token.value;
    const lower = token.value.toLowerCase();
    if (lower === "true" || lower === "false") return () => lower === "true";
    if (lower === "nan") return () => NaN;
    if (lower === "inf" || lower === "-inf") return () => (lower === "inf" ? Infinity : -Infinity);
    return this.store.keyOf(token.value) === undefined ? () => token.value : this.values(token);
  }

  values(token) {
    const { store } = this;
    const key = store.keyOf(token.value);
    if (key === undefined) this.fail(unknown(token.value, store), token);
    if (key === "status") return (at) => [wordAt(store, at), store.columns.status[at]];
    return (at) => store.column(key)?.[at] ?? null;
  }

  search(token) {
    const { store } = this;
    const typed = String(token.kind === "number" ? this.text.slice(token.start, token.end) : token.value);
    const part = typed.toLowerCase();
    const index = /^#(\d+)$/.exec(part); // as the page writes a trial: #7
    if (index !== null && token.kind === "word") return (at) => store.columns.index[at] === Number(index[1]);
    return (at) => wordAt(store, at).includes(part) || store.columns.status[at] === typed || SEARCHED.some((key) => String(store.column(key)[at] ?? "").toLowerCase().includes(part));
  }

  peek() {
    return this.tokens[this.at];
  }

  next(what) {
    const token = this.peek();
    if (token === undefined) this.fail(`The filter ends too early: ${what} is missing.`);
    this.at += 1;
    return token;
  }

  takes(kind, value) {
    const token = this.peek();
    if (token === undefined || token.kind !== kind || (value !== undefined && token.value !== value)) return undefined;
    this.at += 1;
    return token;
  }

  fail(message, token = this.peek()) {
    throw new FilterError(message, token?.start ?? this.text.length);
  }
}

const isMissing = (value) => value === null || value === undefined || (Array.isArray(value) && value[0] === null);
const textOf = (value) => (Array.isArray(value) ? value[0] : typeof value === "string" ? value : JSON.stringify(value) ?? "");

/** A value that is missing passes no comparison but `!=`. */
function compareWith(values, operator, operand) {
  // An id such as 12e45678 reads as a number: a text is compared with what was written.
  const isSame = (at) => same(values(at), typeof values(at) === "string" && operand.raw !== undefined ? operand.raw : operand(at));
  if (operator === "==" || operator === "=") return isSame;
  if (operator === "!=") return (at) => !isSame(at);
  const decide = { "<": (a, b) => a < b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, ">=": (a, b) => a >= b }[operator];
  return (at) => {
    const [left, right] = [values(at), operand(at)];
    return typeof left === typeof right && !isMissing(left) && (typeof left === "number" || typeof left === "string") && decide(left, right);
  };
}

function same(left, right) {
  if (Array.isArray(left) && typeof right === "string") return same(left[0], right) || left[1] === right; // a state
  if (typeof left === "string" && typeof right === "string") return left.toLowerCase() === right.toLowerCase();
  if (typeof left === "boolean" || typeof right === "boolean") return (left === null ? false : left) === (right === null ? false : right);
  if (typeof left === "number" && typeof right === "number") return Object.is(left, right) || left === right;
  return !isMissing(left) && textOf(left).toLowerCase() === textOf(right).toLowerCase();
}

function unknown(name, store) {
  const near = nearest(name, store.keys.map(shortName));
  return `There is no column “${name}”.${near ? ` Did you mean “${near}”?` : " The column list shows what there is."}`;
}

const shortName = (key) => key.replace(/^(config|metrics)\//, "");

function nearest(name, names) {
  const scored = names.map((one) => [distance(name.toLowerCase(), one.toLowerCase()), one]).sort(([a], [b]) => a - b);
  return scored.length > 0 && scored[0][0] <= Math.max(1, name.length / 3) ? scored[0][1] : null;
}

function distance(a, b) {
  if (Math.abs(a.length - b.length) > 6 || a.length > 60) return 99;
  let row = Array.from({ length: b.length + 1 }, (_, n) => n);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) next.push(Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1)));
    row = next;
  }
  return row[b.length];
}

/** A function that says whether the trial at a position passes. Raises FilterError. */
export function filterOf(text, store) {
  if (text.trim() === "") return () => true;
  return new Parser(text, store).parsed();
}

/** `{positions, error}`: the trials that pass; all of them, and the error, if the text cannot be used. */
export function filtered(store, text) {
  const all = store.ids.map((_, at) => at);
  try {
    const passes = filterOf(text, store);
    return { positions: text.trim() === "" ? all : all.filter(passes), error: null };
  } catch (error) {
    if (error instanceof FilterError) return { positions: all, error };
    throw error;
  }
}

/** A name as the filter reads it. */
export function quotedName(key, store) {
  const short = shortName(key);
  const name = store.keyOf(short) === key ? short : key;
  return /^[^\s()[\],<>=!"'`]+$/u.test(name) && !KEYWORDS.includes(name.toLowerCase()) && Number.isNaN(Number(name)) ? name : `\`${name}\``;
}

const quotedValue = (value) => (typeof value === "string" ? JSON.stringify(value) : String(value));

/** What can stand at the cursor: `[{text, from, hint}]`; `text` replaces what stands from `from` to the cursor. */
export function completions(text, cursor, store, limit = 8) {
  const before = text.slice(0, cursor);
  const from = before.length - /[^\s()[\],<>=!]*$/u.exec(before)[0].length;
  const started = before.slice(from).replace(/^[`"']/, "").toLowerCase();
  const earlier = before.slice(0, from).trimEnd();
  const offers = offered(earlier, store);
  const fit = offers.filter(({ text: offer }) => offer.toLowerCase().replace(/^[`"']/, "").startsWith(started));
  const inside = offers.filter((offer) => started !== "" && !fit.includes(offer) && offer.text.toLowerCase().includes(started));
  return [...fit, ...inside].filter(({ text: offer }) => offer.toLowerCase() !== before.slice(from).toLowerCase()).slice(0, limit).map((offer) => ({ ...offer, from }));
}

function offered(earlier, store) {
  const value = /(?:`([^`]+)`|([^\s()[\],<>=!]+))\s*(?:==|!=|=|(?:\bnot\s+)?\bin\s*[[(](?:[^\])]*,)?)$/iu.exec(earlier);
  if (value) return valuesOf(value[1] ?? value[2], store);
  if (/(<=|>=|<|>|\bcontains)$/iu.test(earlier)) return [];
  const last = /(?:`([^`]+)`|([^\s()[\],<>=!]+))$/u.exec(earlier);
  if (last && !KEYWORDS.includes((last[2] ?? "").toLowerCase()) && store.keyOf(last[1] ?? last[2]) !== undefined && !/(<=|>=|<|>|=)\s*\S+$/u.test(earlier)) {
    return ["<", "<=", ">", ">=", "==", "!=", "in [", "contains", "is missing"].map((operator) => ({ text: operator, hint: "" }));
  }
  if (earlier !== "" && !/(\(|\band|\bor|\bnot)$/iu.test(earlier)) return ["and", "or"].map((word) => ({ text: word, hint: "" }));
  return store.keys.map((key) => ({ text: quotedName(key, store), hint: key.startsWith("config/") ? "parameter" : key.startsWith("metrics/") ? "metric" : "" }));
}

function valuesOf(name, store) {
  const key = store.keyOf(name);
  if (key === undefined) return [];
  if (key === "status") {
    const words = new Set(store.ids.map((_, at) => wordAt(store, at)));
    return [...words].sort().map((word) => ({ text: word.includes(" ") ? `"${word}"` : word, hint: "" }));
  }
  const seen = new Set();
  for (const value of store.column(key)) {
    if (value !== null && typeof value !== "object" && String(value).length <= 60) seen.add(value);
    if (seen.size > 50) break;
  }
  return [...seen].map((one) => ({ text: quotedValue(one), hint: "" }));
}
