// Numbers as the server writes them and as people read them.

const TEXTS = { NaN: NaN, Infinity: Infinity, "-Infinity": -Infinity };

/** A number of the server's JSON, where NaN and infinity are strings; null for everything that is not a number. */
export function number(value) {
  if (typeof value === "number") return value;
  return typeof value === "string" && Object.hasOwn(TEXTS, value) ? TEXTS[value] : null;
}

export const isFinite = (value) => typeof value === "number" && Number.isFinite(value);

/** Four significant digits, with an exponent where zeros would be many: `0.01234`, `1.2e-7`, `12,340`. */
export function short(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return typeof value === "string" ? value : JSON.stringify(value);
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "∞" : "−∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size < 1e-4 || size >= 1e7) return value.toExponential(3).replace(/\.?0+e/, "e").replace("e+", "e");
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return Number(value.toPrecision(4)).toLocaleString("en", { maximumFractionDigits: 8 });
}

/** `1 trial`, `12,000 trials`. */
export const counted = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

const UNITS = [
  ["d", 86400],
  ["h", 3600],
  ["min", 60],
  ["s", 1],
];

/** The unit in which a span of so many seconds reads well: `{name: "min", seconds: 60}`. */
export function timeUnit(span) {
  const [name, seconds] = UNITS.find(([, unit]) => span >= 2 * unit) ?? UNITS.at(-1);
  return { name, seconds };
}

/** `3 h 12 min`, `45 s`, `0.25 s`. */
export function duration(seconds) {
  if (!isFinite(seconds)) return "–";
  if (seconds < 10) return `${Number(seconds.toPrecision(2))} s`;
  const whole = Math.round(seconds);
  const at = UNITS.findIndex(([, unit]) => whole >= unit);
  const [name, unit] = UNITS[at];
  const [finer, finerUnit] = UNITS[at + 1] ?? [null, 1];
  const rest = finer === null ? 0 : Math.round((whole % unit) / finerUnit);
  const first = `${Math.floor(whole / unit)} ${name}`;
  return rest > 0 && rest * finerUnit < unit ? `${first} ${rest} ${finer}` : first;
}

/** The local date and time of seconds since 1970: `2026-11-26 22:05:10`. */
export function moment(at) {
  if (!isFinite(at)) return "–";
  const local = new Date(at * 1000);
  const two = (part) => String(part).padStart(2, "0");
  return (
    `${local.getFullYear()}-${two(local.getMonth() + 1)}-${two(local.getDate())} ` +
    `${two(local.getHours())}:${two(local.getMinutes())}:${two(local.getSeconds())}`
  );
}
