// The page's address: `#/e/KEY/t/TRIAL?filter=...`. What is seen is in it, so that a link shows the same. No DOM in here.

/** The route of a hash: `{page, key, trial, view}`; `view` has the texts of its query. */
export function routeOf(hash) {
  const [path, query = ""] = splitOnce(hash.replace(/^#/, ""), "?");
  const view = Object.assign(Object.create(null), Object.fromEntries(new URLSearchParams(query)));
  const parts = path.split("/").filter((part) => part !== "").map(decode);
  if (parts.length === 0) return { page: "experiments", view };
  if (parts[0] === "compare" && parts.length === 1) return { page: "compare", view };
  if (parts[0] === "e" && parts.length === 2) return { page: "experiment", key: parts[1], view };
  if (parts[0] === "e" && parts[2] === "t" && parts.length === 4) return { page: "trial", key: parts[1], trial: parts[3], view };
  return { page: "unknown", view };
}

/** The hash of a route. What is empty in `view` is left out. */
export function hashOf({ page, key, trial, view = {} }) {
  const path = { experiments: "/", compare: "/compare", experiment: `/e/${encode(key)}`, trial: `/e/${encode(key)}/t/${encode(trial)}` }[page];
  const query = new URLSearchParams(Object.entries(view).filter(([, value]) => value !== undefined && value !== null && value !== ""));
  const text = query.toString();
  return `#${path}${text === "" ? "" : `?${text}`}`;
}

/** The query of the page that compares `[{key, trial}]`; without `trial`: the whole experiment. */
export function compareView(things) {
  const pair = ({ key, trial }) => `${encode(key)}:${encode(trial)}`;
  return {
    e: things.filter(({ trial }) => !trial).map(({ key }) => encode(key)).join(","),
    t: things.filter(({ trial }) => trial).map(pair).join(","),
  };
}

export function comparedThings(view) {
  const items = (text) => (text ? text.split(",") : []);
  const pair = (text) => {
    const [key, trial] = splitOnce(text, ":");
    return { key: decode(key), trial: decode(trial ?? "") };
  };
  return [...items(view.e).map((key) => ({ key: decode(key) })), ...items(view.t).map(pair)];
}

const encode = (text) => encodeURIComponent(text ?? "");

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function splitOnce(text, mark) {
  const at = text.indexOf(mark);
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + mark.length)];
}
