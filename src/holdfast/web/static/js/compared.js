// Trials of any experiments as one small store, for the page that compares them. No DOM in here.

import { flat, plain } from "./format.js";
import { Store } from "./store.js";

/** One id for a trial among several experiments; "/" and ":" are in neither part. */
export const jointId = (key, id) => `${encodeURIComponent(key)}/${encodeURIComponent(id)}`;

/** A store of `[{key, trial}]`, where `trial` is an answer of `api/e/KEY/t/ID`. */
export function jointStore(things) {
  const store = new Store({ version: 0, ids: [], columns: {}, params: {}, metrics: {} });
  store.apply({ version: 0, trials: things.map(({ key, trial }) => ({ ...trial, params: flat(trial.params ?? trial.config), metrics: flat(trial.metrics ?? {}), trial_id: jointId(key, trial.trial_id) })) });
  return store;
}

/** `api.rows` for joint ids: it asks each experiment for its own. */
export function jointRows(rows) {
  return async (_, { trials, ...wanted }) => {
    const byKey = new Map();
    for (const item of trials) {
      const [key, rest] = item.split("/");
      const [id, after] = rest.split(":");
      const one = `${decodeURIComponent(id)}${after === undefined ? "" : `:${after}`}`;
      byKey.set(key, [...(byKey.get(key) ?? []), one]);
    }
    const answers = await Promise.all([...byKey].map(async ([key, ids]) => [key, await rows(decodeURIComponent(key), { trials: ids, ...wanted })]));
    const joint = (part) => Object.assign({}, ...answers.map(([key, answer]) => Object.fromEntries(Object.entries(answer[part] ?? {}).map(([id, value]) => [`${key}/${encodeURIComponent(id)}`, value]))));
    return { trials: joint("trials"), missing: joint("missing") };
  };
}

/** `[{name, values, differs}]` of the things' `part`, names that differ first. */
export function rowsOf(parts) {
  const names = [...new Set(parts.flatMap((part) => Object.keys(part)))];
  const rows = names.map((name) => {
    const values = parts.map((part) => (Object.hasOwn(part, name) ? part[name] : undefined));
    return { name, values, differs: new Set(values.map((value) => (value === undefined ? "" : `${typeof value} ${plain(value)}`))).size > 1 };
  });
  return rows.sort((a, b) => b.differs - a.differs);
}

/** Where the best of several values are; nowhere if all are equal, or if it is not known what is better. */
export function bestOf(values, mode) {
  const numbers = values.filter((value) => typeof value === "number" && !Number.isNaN(value));
  const [least, most] = [Math.min(...numbers), Math.max(...numbers)];
  if (mode === undefined || mode === null || numbers.length < 2 || least === most) return [];
  return values.flatMap((value, at) => (value === (mode === "min" ? least : most) ? [at] : []));
}
