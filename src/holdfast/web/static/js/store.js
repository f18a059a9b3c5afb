// The trials of one experiment in the browser: arrays by column, changed by the stream's events. No DOM in here.

const NUMBERS = new Map([["NaN", NaN], ["Infinity", Infinity], ["-Infinity", -Infinity]]);
const decoded = (value) => (NUMBERS.has(value) ? NUMBERS.get(value) : value ?? null);

/** An object by names that come from an experiment, which may be called `__proto__`. */
const named = (entries) => Object.assign(Object.create(null), Object.fromEntries(entries));

/** The columns that every trial has, and what they hold: how to sort, filter and show them. */
export const COLUMNS = {
  index: "number", name: "text", status: "text", stop_reason: "text", why: "text", iteration: "number",
  attempt: "number", failures: "number", time_total_s: "seconds", reported_at: "time", value: "number", node: "text",
  began_at: "time", note: "text", checkpoint: "text", error: "text", is_added: "flag", confirms: "text", is_held: "flag", pausing: "flag", checkpoint_iteration: "number",
};

export class Store {
  #positions = new Map();
  #listeners = new Set();
  #names = null;
  #shared = {};
  #changedAt = new Map();
  #loadedAt = 0;
  #isLive = true;

  ids = [];
  columns = {};
  params = named([]);
  metrics = named([]);
  hovered = null;
  /** The server's version of these trials: a stream that reconnects asks for what came after it. */
  serverVersion = 0;
  /** Counts the changes in this browser. */
  version = 0;

  constructor(answer = null) {
    if (answer !== null) this.load(answer);
  }

  /** Replaces everything by an answer of `api/e/KEY/trials`. */
  load(answer) {
    this.ids = [...answer.ids];
    this.#positions = new Map(this.ids.map((id, at) => [id, at]));
    this.columns = Object.fromEntries(Object.keys(COLUMNS).map((name) => [name, this.#array(answer.columns[name], name === "value")]));
    this.params = named(Object.entries(answer.params).map(([name, values]) => [name, this.#array(values, true)]));
    this.metrics = named(Object.entries(answer.metrics).map(([name, values]) => [name, this.#array(values, true)]));
    this.serverVersion = answer.version;
    this.#changedAt.clear();
    this.#loadedAt = this.version + 1;
    this.#changed();
  }

  /** Takes in an event `trials` of the stream. */
  apply({ version, trials }) {
    for (const trial of trials) {
      this.#put(trial);
      this.#changedAt.set(trial.trial_id, this.version + 1);
    }
    this.serverVersion = version;
    this.#changed();
  }

  get size() {
    return this.ids.length;
  }

  /** Where a trial is in the arrays; -1 if it is unknown. */
  position(id) {
    return this.#positions.get(id) ?? -1;
  }

  /** Every key of `column()`: `status`, `config/lr`, `metrics/loss`. */
  get keys() {
    this.#names ??= [
      "id",
      ...Object.keys(COLUMNS),
      ...Object.keys(this.params).map((name) => `config/${name}`),
      ...Object.keys(this.metrics).map((name) => `metrics/${name}`),
    ];
    return this.#names;
  }

  /** The values of a column, one for each trial; undefined if there is no such column. */
  column(key) {
    if (key === "id") return this.ids;
    if (key.startsWith("config/")) return this.params[key.slice(7)];
    if (key.startsWith("metrics/")) return this.metrics[key.slice(8)];
    return Object.hasOwn(this.columns, key) ? this.columns[key] : undefined;
  }

  /** The key that a user's name means: the key itself, else a parameter's, else a metric's; undefined if none. */
  keyOf(name) {
    const plain = name === "trial_id" ? "id" : name;
    return [plain, `config/${plain}`, `metrics/${plain}`].find((key) => this.column(key) !== undefined);
  }

  /** What all ids begin with, up to a "_" or "-" and zeros: the part of an id that says nothing about the trial. */
  get sharedStart() {
    if (this.#shared.of !== this.ids || this.#shared.count !== this.ids.length) {
      let start = this.ids[0] ?? "";
      for (const id of this.ids) while (!id.startsWith(start)) start = start.slice(0, -1);
      this.#shared = { of: this.ids, count: this.ids.length, start: /^(.*[_-]0*)?/u.exec(start)[0] };
    }
    return this.#shared.start;
  }

  /** The version with which a trial changed last. */
  changedAt(id) {
    return this.#changedAt.get(id) ?? this.#loadedAt;
  }

  value(id, key) {
    return this.column(key)?.[this.position(id)] ?? null;
  }

  /** How many trials have each status. */
  counts() {
    const counts = {};
    for (const status of this.columns.status ?? []) counts[status] = (counts[status] ?? 0) + 1;
    return counts;
  }

  /** The best trial: the one that fresh runs have confirmed, else that with the best last value. */
  leader(facts) {
    const first = facts.confirmed?.[0];
    return typeof first?.mean === "number" ? first.trial_id : this.best(facts.mode);
  }

  /** The id of the trial whose last value is the best; null if no trial has one. Fresh runs confirm others. */
  best(mode) {
    if (mode !== "min" && mode !== "max") return null;
    const values = this.columns.value ?? [];
    let best = -1;
    for (let at = 0; at < values.length; at++) {
      if (typeof values[at] !== "number" || Number.isNaN(values[at]) || this.columns.confirms?.[at]) continue;
      if (best < 0 || (mode === "min" ? values[at] < values[best] : values[at] > values[best])) best = at;
    }
    return best < 0 ? null : this.ids[best];
  }

  /** How many trials have a better value than this one, plus one; null if it has no value. */
  rank(id, mode) {
    const own = this.value(id, "value");
    if (typeof own !== "number" || Number.isNaN(own)) return null;
    return 1 + this.columns.value.filter((value) => typeof value === "number" && (mode === "min" ? value < own : value > own)).length;
  }

  hover(id) {
    if (this.hovered === id) return;
    this.hovered = id;
    this.#tell();
  }

  /** Whether a process runs the experiment. */
  get isLive() {
    return this.#isLive;
  }

  set isLive(value) {
    if (value === this.#isLive) return;
    this.#isLive = value;
    this.#loadedAt = this.version + 1; // every row is drawn again
    this.#changedAt.clear();
    this.#changed();
  }

  /** Calls `listener` after each change, and when another trial is hovered. */
  subscribe(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #array(values, decode) {
    if (values === undefined) return new Array(this.ids.length).fill(null);
    return decode ? values.map(decoded) : [...values];
  }

  #put(trial) {
    let at = this.position(trial.trial_id);
    if (at < 0) {
      at = this.ids.push(trial.trial_id) - 1;
      this.#positions.set(trial.trial_id, at);
      for (const group of [this.columns, this.params, this.metrics]) for (const values of Object.values(group)) values.push(null);
    }
    for (const name of Object.keys(COLUMNS)) this.columns[name][at] = name === "value" ? decoded(trial[name]) : trial[name] ?? null;
    this.#fill(this.params, trial.params ?? {}, at);
    this.#fill(this.metrics, trial.metrics ?? {}, at);
  }

  #fill(group, values, at) {
    for (const name of Object.keys(values)) {
      if (Object.hasOwn(group, name)) continue;
      group[name] = new Array(this.ids.length).fill(null);
      this.#names = null;
    }
    for (const name of Object.keys(group)) group[name][at] = Object.hasOwn(values, name) ? decoded(values[name]) : null;
  }

  #changed() {
    this.version += 1;
    this.#names = null;
    this.#tell();
  }

  #tell() {
    for (const listener of [...this.#listeners]) listener();
  }
}

/** Less than 0 if `a` goes before `b`: numbers by value, then texts, then what is missing. NaN is missing. */
export function compared(a, b) {
  const rank = (value) => (value === null || value === undefined || Number.isNaN(value) ? 2 : typeof value === "number" || typeof value === "boolean" ? 0 : 1);
  const [first, second] = [rank(a), rank(b)];
  if (first !== second) return first - second;
  if (first === 0) return a - b;
  return first === 2 ? 0 : textOf(a).localeCompare(textOf(b), "en", { numeric: true });
}

const textOf = (value) => (typeof value === "string" ? value : JSON.stringify(value));

/** Positions in the order of a column. What is missing goes last in both directions; ties keep their order. */
export function sorted(store, positions, key, descending) {
  const values = store.column(key);
  if (values === undefined) return [...positions];
  const missing = (value) => value === null || value === undefined || Number.isNaN(value);
  const sign = descending ? -1 : 1;
  return [...positions].sort((a, b) => {
    const [left, right] = [values[a], values[b]];
    if (missing(left) || missing(right)) return missing(left) - missing(right) || a - b;
    return sign * compared(left, right) || a - b;
  });
}
