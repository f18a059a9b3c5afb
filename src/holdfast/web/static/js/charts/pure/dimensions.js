// The columns of an experiment as axes: which there are, of which kind, and what they are called.

import { isFinite } from "./numbers.js";
import { extent } from "./scales.js";
import { cut } from "./ticks.js";

const PLAIN = {
  iteration: ["iterations", "number"],
  time_total_s: ["training time (s)", "number"],
  failures: ["failures", "number"],
  index: ["trial number", "number"],
  reported_at: ["last report", "time"],
  status: ["status", "category"],
  stop_reason: ["stop reason", "category"],
  node: ["node", "category"],
};
const MOST_CATEGORIES = 40;

/** A trial's name, cut where it is longer than a line. */
export const nameOf = (store, id) => cut(String(store.value(id, "name") ?? id), 80);

/** The goals by metric, "min" or "max": one, or several. */
export const goalsOf = (facts) => ({ ...(facts.metric && facts.mode ? { [facts.metric]: facts.mode } : {}), ...facts.goals });

/** The mode of the goal that a column holds; null if it is none. */
export const modeOf = (facts, key) => (key?.startsWith("metrics/") ? goalsOf(facts)[key.slice(8)] ?? null : null);

/** The name of a column's key (`config/lr`, `metrics/loss`, `iteration`) for people. */
export const labelOf = (key) => PLAIN[key]?.[0] ?? cut(key.replace(/^(config|metrics)\//, ""), 60);

/** What a column holds: "number", "category", "time", or "empty". */
export function kindOf(key, values) {
  if (Object.hasOwn(PLAIN, key)) return PLAIN[key][1];
  let kind = "empty";
  for (const value of values) {
    if (value === null || value === undefined) continue;
    if (typeof value !== "number") return "category";
    kind = "number";
  }
  return kind;
}

/** A category's text. */
export const categoryOf = (value) => (value === null || value === undefined ? null : typeof value === "string" ? value : JSON.stringify(value));

/** The categories of a column, the most frequent first where they are too many for an axis; the rest is "(other)". */
export function categoriesOf(values) {
  const counts = new Map();
  for (const value of values) {
    const text = categoryOf(value);
    if (text !== null) counts.set(text, (counts.get(text) ?? 0) + 1);
  }
  const texts = [...counts.keys()];
  if (texts.length <= MOST_CATEGORIES) return texts.sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  return [...texts.sort((a, b) => counts.get(b) - counts.get(a)).slice(0, MOST_CATEGORIES - 1), OTHER];
}
export const OTHER = "(other)";

/** The keys that can be an axis: the metric first, then varied parameters, metrics, the rest of the parameters, columns. */
export function axisKeys(store, facts) {
  const has = (key) => store.column(key) !== undefined;
  const names = (prefix, group) => group.map((name) => `${prefix}/${name}`);
  const goals = Object.keys(goalsOf(facts));
  const keys = [
    ...names("metrics", goals),
    ...names("config", facts.varied ?? []),
    ...names("metrics", facts.metrics ?? []),
    ...names("config", Object.keys(store.params)),
    ...Object.keys(PLAIN),
  ];
  return [...new Set(keys)].filter(has);
}

/** The axis of a column: `{key, label, kind, log, values, range, categories}`. `log` overrides what the space says. */
export function dimension(store, facts, key, log = null) {
  const values = store.column(key) ?? [];
  const kind = kindOf(key, values);
  const dim = { key, label: labelOf(key), kind, values, log: false, range: null, categories: null };
  if (kind === "category") return { ...dim, categories: categoriesOf(values) };
  const said = (facts.space ?? []).find(({ name }) => `config/${name}` === key)?.log === true;
  const range = extent(values, log ?? said);
  return { ...dim, log: range !== null && kind === "number" && (log ?? said), range: range ?? extent(values) };
}

/** Where a value is on its axis: a number, a category's place, or null. */
export function placeOn(dim, value) {
  if (dim.kind === "category") {
    const text = categoryOf(value);
    if (text === null) return null;
    const at = dim.categories.indexOf(text);
    return at >= 0 ? at : dim.categories.indexOf(OTHER);
  }
  return isFinite(value) && (!dim.log || value > 0) ? value : null;
}

/** The ids of the trials with the best values, the best first. */
export function bestIds(store, mode, count) {
  const sign = mode === "max" ? -1 : 1;
  const values = store.columns.value ?? [];
  const places = values.map((_, at) => at).filter((at) => isFinite(values[at]));
  return places
    .sort((a, b) => sign * (values[a] - values[b]) || a - b)
    .slice(0, count)
    .map((at) => store.ids[at]);
}
