// Reads the rows that curves need, and then only what is new.

import { useEffect, useMemo, useState } from "../../vendor/htm-preact.module.js";
import { Rows } from "./pure/rows.js";

// So many ids fit into a URL that every proxy accepts.
const AT_ONCE = 250;

/** Asks for rows, one request at a time, until it has those of the trials that are wanted. */
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
      for (let wanted = this.#next(); wanted.length > 0; wanted = this.#next()) {
        const answer = await this.ask(wanted);
        if (this.#isClosed) return;
        this.rows.take(answer, this.iterationOf);
        this.changed({ loading: this.#next().length > 0, error: null });
      }
    } catch (refused) {
      error = refused.message;
    }
    this.#isReading = false;
    if (!this.#isClosed) this.changed({ loading: false, error });
  }

  #next() {
    return this.#isClosed ? [] : this.rows.wanted(this.#ids, this.iterationOf).slice(0, AT_ONCE);
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
        ask: (trials) => api.rows(facts.key, { trials, metrics: [metric], points }),
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
