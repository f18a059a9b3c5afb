// Values as people read them: with units, short, and the same everywhere. No DOM in here.

/** Texts longer than this are shortened where they stand in a line. */
export const SHORT = 300;

/** A number in at most six significant digits: `0.01234`, `1.2e-7`, `12,345`. */
export function number(value) {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e15) return minus(grouped(value));
  if (size >= 1e6 || size < 1e-4) return minus(value.toExponential(3).replace(/\.?0+e/, "e").replace("e+", "e"));
  return minus(trimmed(value.toPrecision(size >= 1000 ? 6 : 5)));
}

const trimmed = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);
const minus = (text) => text.replace(/^-/, "−");
const grouped = (value) => (Math.abs(value) < 10000 ? String(value) : value.toLocaleString("en"));

/** A count with its word: `1 trial`, `12,000 trials`. */
export const count = (n, word, words = `${word}s`) => `${n.toLocaleString("en")} ${n === 1 ? word : words}`;

/** Seconds as `0.4 s`, `12 s`, `3 min 5 s`, `2 h 10 min`, `3 d 4 h`. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "";
  if (seconds < 0) return `−${duration(-seconds)}`;
  if (seconds < 1) return seconds === 0 ? "0 s" : seconds < 0.01 ? `${trimmed((seconds * 1000).toPrecision(2))} ms` : `${trimmed(seconds.toFixed(2))} s`;
  if (seconds < 9.95) return `${trimmed(seconds.toFixed(1))} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return two(whole, 60, "min", 1, "s");
  const minutes = Math.round(whole / 60);
  if (minutes < 1440) return two(minutes * 60, 3600, "h", 60, "min");
  return two(Math.round(whole / 3600) * 3600, 86400, "d", 3600, "h");
}

function two(whole, large, largeUnit, small, smallUnit) {
  const [many, rest] = [Math.floor(whole / large), Math.floor((whole % large) / small)];
  return rest === 0 ? `${many} ${largeUnit}` : `${many} ${largeUnit} ${rest} ${smallUnit}`;
}

/** One unit is enough for an age: `12 s ago`, `3 min ago`, `5 d ago`. */
export function ago(at, now) {
  if (at === null || at === undefined) return "";
  const seconds = now - at;
  return seconds < 1 ? "now" : `${rough(seconds)} ago`;
}

function rough(seconds) {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 2 * 86400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

/** `about 3 min left`; empty if it is not known. */
export function left(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 10) return "a few seconds left";
  if (seconds < 60) return `about ${Math.round(seconds / 10) * 10} s left`;
  if (seconds < 3600) return `about ${Math.round(seconds / 60)} min left`;
  if (seconds < 86400) return `about ${duration(Math.round(seconds / 600) * 600)} left`;
  return `about ${duration(Math.round(seconds / 3600) * 3600)} left`;
}

export function bytes(size) {
  if (size === null || size === undefined) return "";
  if (size < 1000) return count(size, "byte");
  const units = ["kB", "MB", "GB", "TB", "PB"];
  let value = size / 1000;
  let unit = 0;
  while (value >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${value < 9.95 ? trimmed(value.toFixed(1)) : Math.round(value)} ${units[unit]}`;
}

/** A share of 0 to 1 as `42 %`; it is 100 % only when nothing is left. */
export function percent(share) {
  if (share === null || share === undefined) return "";
  const value = share * 100;
  if (value > 0 && value < 1) return "<1 %";
  return `${value < 100 ? Math.min(99, Math.floor(value + 1e-9)) : 100} %`;
}

/** `14:03:20` of today, else with the day; in the reader's time zone. */
export function clock(at, now = Date.now() / 1000) {
  if (at === null || at === undefined) return "";
  const [date, today] = [new Date(at * 1000), new Date(now * 1000)];
  const two = (n) => String(n).padStart(2, "0");
  const time = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  if (date.toDateString() === today.toDateString()) return time;
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${time}`;
}

/** Any value of an experiment as one line. */
export function plain(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return number(value);
  if (typeof value === "boolean") return value ? "True" : "False";
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** A text as a sentence: with a full stop, and a capital unless it begins with a user's name, as in `ann (page)`. */
export function sentence(text) {
  const first = /^\S+ \((page|command)\)/.test(text) ? text.charAt(0) : text.charAt(0).toUpperCase();
  return `${first}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;
}

/** A text's beginning, and whether that is all of it. */
export function shortened(text, length = SHORT) {
  return text.length <= length ? { text, isWhole: true } : { text: `${text.slice(0, length)}…`, isWhole: false };
}

/** `iteration 22`, `iterations 3 to 5`; `no iteration` if `last` is not after `before`. */
export function iterations(before, last) {
  if (last <= before) return "no iteration";
  return last === before + 1 ? `iteration ${last.toLocaleString("en")}` : `iterations ${(before + 1).toLocaleString("en")} to ${last.toLocaleString("en")}`;
}

/** A configuration in a line: `lr=0.01, batch=64`; only what the search varies, if that is known. */
export function configLine(config, varied = []) {
  const names = varied.filter((name) => valueAt(config, name) !== undefined);
  const shown = names.length > 0 ? names : Object.keys(config);
  return shown.map((name) => `${name}=${shortened(plain(valueAt(config, name)), 40).text}`).join(", ");
}

/** The value of a name such as `optimizer/lr`, in a flat or a nested configuration. */
export function valueAt(config, name) {
  if (Object.hasOwn(config, name)) return config[name];
  return name.split("/").reduce((inner, part) => (inner !== null && typeof inner === "object" && Object.hasOwn(inner, part) ? inner[part] : undefined), config);
}

/** A nested configuration with one entry for each value: `{"optimizer/lr": 0.1}`. */
export function flat(config, prefix = "") {
  const entries = Object.entries(config ?? {}).flatMap(([name, value]) =>
    value !== null && typeof value === "object" && !Array.isArray(value) && Object.keys(value).length > 0
      ? Object.entries(flat(value, `${prefix}${name}/`))
      : [[`${prefix}${name}`, value]],
  );
  return Object.assign(Object.create(null), Object.fromEntries(entries));
}
