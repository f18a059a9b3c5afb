// Reads the rows that curves need, and then only what is new.

import { useEffect, useMemo, useState } from "../../vendor/htm-preact.module.js";
import { Rows } from "./pure/rows.js";

// So many ids fit into a URL that every proxy accepts.
const AT_ONCE = 250;

/** Asks for the rows of the trials that are wanted, one request at a time. */
class Reader {
  #ids = [];
  #isReading = false;
  #isClosed = false;

  constructor({ rows, ask, iterationOf, changed }) {
    Object.assign(this, { rows, ask, iterationOf, changed });
  }

  want(ids) {
    this.#ids = ids;
    if (!this.#isReading) this.#read();
  }

  close() {
    this.#isClosed = true;
  }

  async #read() {
    this.#isReading = true;
    let error = null;
    try {
      for (let ids = null; ids !== this.#ids;) {
        ids = this.#ids;
        const wanted = this.rows.wanted(ids, this.iterationOf);
        for (let first = 0; first < wanted.length && ids === this.#ids; first += AT_ONCE) {
          const some = wanted.slice(first, first + AT_ONCE);
          const answer = await this.ask(some, this.rows.pointsFor(some, this.iterationOf));
          if (this.#isClosed) return;
          this.rows.take(answer, this.iterationOf);
          this.changed({ loading: first + AT_ONCE < wanted.length, error: null });
        }
      }
    } catch (refused) {
      error = refused.message;
    }
    this.#isReading = false;
    if (!this.#isClosed) this.changed({ loading: false, error });
  }
}

/** `{rows, turn, loading, error}`; `turn` changes with the rows. New rows are read when `version` changes. */
export function useRows({ api, store, facts, ids, metric, version }) {
  const points = ids.length > 300 ? 400 : ids.length > 60 ? 1000 : 2000;
  const [state, setState] = useState({ turn: 0, loading: true, error: null });
  const reader = useMemo(
    () =>
      new Reader({
        rows: new Rows(metric, points),
        ask: (trials, most) => api.rows(facts.key, { trials, metrics: [metric], points: most }),
        iterationOf: (id) => store.value(id, "iteration"),
        changed: (next) => setState(({ turn }) => ({ turn: turn + 1, ...next })),
      }),
    [api, store, facts.key, metric, points],
  );
  useEffect(() => () => reader.close(), [reader]);
  useEffect(() => {
    if (metric !== undefined) reader.want(ids);
  }, [reader, ids, version]);
  return { rows: reader.rows, ...state };
}
