// One experiment that the page reads and follows: its facts, its trials, its stream. Pages of the same experiment share it.

import { api } from "./api.js";
import { Store } from "./store.js";
import { serverTime, useEffect, useReducer, useState } from "./ui.js";

const STARTING = 503; // the status while a run has no record yet
const LINGERS_MS = 500; // the next page of the same experiment takes it over

class Session {
  #listeners = new Set();
  #stop = null;
  #isOpen = true;
  #timer = 0;
  #retry = 0;

  store = new Store();
  facts = null;
  error = null;

  constructor(key) {
    this.key = key;
    this.read();
  }

  async read() {
    clearTimeout(this.#retry);
    try {
      const [facts, trials] = await Promise.all([api.facts(this.key), api.trials(this.key)]);
      this.store.load(trials);
      this.#take(facts);
      this.error = null;
      this.#follow();
    } catch (error) {
      this.error = error;
      // A page that was opened before its run began shows it as soon as it has.
      if (this.facts === null && error.status !== 403 && this.#isOpen) this.#retry = setTimeout(() => this.read(), error.status === STARTING ? 1000 : 5000);
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
    }, () => this.#lost());
  }

  /** The stream has ended. If the experiment is gone, or the page may not read it, the page says so. */
  async #lost() {
    try {
      await api.facts(this.key);
    } catch (error) {
      if (error.status === 0 || this.#stop === null) return;
      this.error = error;
      if (error.status === 404) {
        this.#stop();
        this.#stop = null;
      }
      this.#tell();
    }
  }

  #take(facts) {
    this.facts = facts;
    this.store.isLive = facts.state === "live";
    serverTime(facts.now);
  }

  #close() {
    clearTimeout(this.#retry);
    this.#isOpen = false;
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
