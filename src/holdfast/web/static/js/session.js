// One experiment that the page reads and follows: its facts, its trials, its stream. Pages of the same experiment share it.

import { api } from "./api.js";
import { Store } from "./store.js";
import { serverTime, useEffect, useReducer, useState } from "./ui.js";

const LINGERS_MS = 500; // the next page of the same experiment takes it over

class Session {
  #listeners = new Set();
  #stop = null;
  #timer = 0;

  store = new Store();
  facts = null;
  error = null;

  constructor(key) {
    this.key = key;
    this.read();
  }

  async read() {
    try {
      const [facts, trials] = await Promise.all([api.facts(this.key), api.trials(this.key)]);
      this.store.load(trials);
      this.#take(facts);
      this.error = null;
      this.#follow();
    } catch (error) {
      this.error = error;
    }
    this.#tell();
  }

  subscribe(listener) {
    clearTimeout(this.#timer);
    this.#listeners.add(listener);
    return () => {
      this.#listeners.delete(listener);
      if (this.#listeners.size === 0) this.#timer = setTimeout(() => this.#close(), LINGERS_MS);
    };
  }

  #follow() {
    if (this.#stop !== null || current !== this) return;
    this.#stop = api.stream(this.key, () => this.store.serverVersion, {
      trials: (event) => this.store.apply(event),
      facts: (facts) => {
        this.#take(facts);
        this.#tell();
      },
      reset: () => this.read(),
    });
  }

  #take(facts) {
    this.facts = facts;
    serverTime(facts.now);
  }

  #close() {
    this.#stop?.();
    this.#stop = null;
    if (current === this) current = null;
  }

  #tell() {
    for (const listener of [...this.#listeners]) listener();
  }

  static of(key) {
    if (current?.key !== key) {
      current?.#close();
      current = new Session(key);
    }
    return current;
  }
}

let current = null;

/** The session of an experiment; the component is drawn again when its facts change. */
export function useSession(key) {
  const [session] = useState(() => Session.of(key));
  const [, changed] = useReducer((n) => n + 1, 0);
  useEffect(() => session.subscribe(changed), [session]);
  return session;
}
