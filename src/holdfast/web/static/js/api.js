// What the server answers. Its address follows from this module's own, so that the page works below any prefix.

const ROOT = new URL("../../", import.meta.url);
const LONGEST_WAIT_S = 15;
// After these, what got no answer is asked again.
const WAITS_MS = [200, 600, 1500];

/** What a request failed with: a sentence for the user, and the HTTP status (0: no answer). */
export class Refused extends Error {
  constructor(sentence, status) {
    super(sentence);
    this.status = status;
  }
}

const pathOf = (key) => encodeURIComponent(key);

export function urlOf(path, query = {}) {
  const url = new URL(`api/${path}`, ROOT);
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
  return url.href;
}

async function answered(request) {
  let response;
  try {
    response = await request;
  } catch {
    throw new Refused("The server does not answer. Is `holdfast web` still running?", 0);
  }
  const body = await response.json().catch(() => null);
  if (response.ok && body !== null) return body;
  if (response.status === 403 && !body?.error) {
    throw new Refused("This browser may not read the page: open the link with the token that `holdfast web` printed.", 403);
  }
  throw new Refused(body?.error ?? `The server answered with status ${response.status}.`, response.status);
}

/** The result of `attempt`, which is made again after each wait: a browser gives up all requests when the machine's network changes. */
export async function persistently(attempt, waits) {
  for (const wait of waits) {
    try {
      return await attempt();
    } catch {
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }
  return attempt();
}

const asked = (url) => persistently(() => fetch(url, { headers: { Accept: "application/json" } }), WAITS_MS);

const get = (path, query) => answered(asked(urlOf(path, query)));

/** The server performs what has the same key once, however often it is sent. */
function post(path, body) {
  const key = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  const headers = { "Content-Type": "application/json", "Idempotency-Key": key };
  return answered(persistently(() => fetch(urlOf(path), { method: "POST", headers, body: JSON.stringify(body) }), WAITS_MS));
}

const trialPath = (key, id) => `e/${pathOf(key)}/t/${pathOf(id)}`;

export const api = {
  about: () => get("about"),
  experiments: () => get("experiments"),
  sizes: () => get("experiments/sizes"),
  facts: (key) => get(`e/${pathOf(key)}`),
  trials: (key) => get(`e/${pathOf(key)}/trials`),
  trial: (key, id) => get(trialPath(key, id)),
  rows: (key, { trials, metrics, points = 2000 }) =>
    get(`e/${pathOf(key)}/rows`, { trials: trials.join(","), metrics: metrics.join(","), points }),
  importance: (key, metric) => get(`e/${pathOf(key)}/importance`, metric ? { metric } : {}),
  scheduler: (key) => get(`e/${pathOf(key)}/scheduler`),
  log: (key, id, name, offset) => get(`${trialPath(key, id)}/log/${pathOf(name)}`, { offset }),
  order: (key, order) => post(`e/${pathOf(key)}/orders`, order),
  fileUrl: (key, id, path) => urlOf(`${trialPath(key, id)}/file`, { path }),
  checkpointUrl: (key, id, dirname) => urlOf(`${trialPath(key, id)}/checkpoint/${pathOf(dirname)}`),
  experimentsStream: (handlers) => followed(() => urlOf("experiments/stream"), handlers),
  stream: (key, version, handlers, onLost) => followed(() => urlOf(`e/${pathOf(key)}/stream`, { version: version() }), handlers, onLost),
};

// Connection: the page has one stream at a time, and one banner that says that it is lost.

const listeners = new Set();
export const connection = {
  isLost: false,
  /** Why connecting again will not help: a server that was restarted has another token. "" if it may. */
  refused: "",
  /** What the server cannot read now, as it says; "" if all is well. */
  trouble: "",
  subscribe(listener) {
    listeners.add(listener);
    return () => listeners.delete(listener);
  },
};

function change(facts) {
  if (Object.entries(facts).every(([name, value]) => connection[name] === value)) return;
  Object.assign(connection, facts);
  for (const listener of [...listeners]) listener();
}

/**
 * Follows a stream of server-sent events until the returned function is called. Connects again, after 1, 2, 4, ... 15 s,
 * with the URL of that moment (it has the version that was seen last). A page that nobody sees for a minute lets go of
 * its connection: a browser has six for a server, and ten tabs may be open.
 */
function followed(urlNow, handlers, onLost) {
  let source = null;
  let timer = 0;
  let wait = 1;
  const connect = () => {
    clearTimeout(timer);
    source = new EventSource(urlNow());
    source.onopen = () => {
      wait = 1;
      change({ isLost: false, refused: "" });
    };
    source.onerror = () => {
      close();
      change({ isLost: true });
      api.about().then(() => change({ refused: "" }), (error) => change({ refused: error.status === 403 ? error.message : "" }));
      timer = setTimeout(connect, wait * 1000);
      wait = Math.min(wait * 2, LONGEST_WAIT_S);
      onLost?.();
    };
    source.addEventListener("trouble", (event) => change({ trouble: JSON.parse(event.data).text }));
    for (const [name, handler] of Object.entries(handlers)) {
      source.addEventListener(name, (event) => handler(JSON.parse(event.data)));
    }
  };
  const close = () => {
    clearTimeout(timer);
    source?.close();
    source = null;
  };
  const seen = () => {
    if (document.hidden) {
      clearTimeout(timer);
      timer = setTimeout(close, 60_000);
    } else if (source === null) {
      connect();
    } else {
      clearTimeout(timer);
    }
  };
  document.addEventListener("visibilitychange", seen);
  connect();
  return () => {
    document.removeEventListener("visibilitychange", seen);
    close();
    change({ isLost: false, refused: "", trouble: "" });
  };
}
