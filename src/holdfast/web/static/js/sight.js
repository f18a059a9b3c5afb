// Whether a part of the page can be seen: what is drawn there costs as much while it is scrolled out of sight.

import { createContext, useEffect, useState } from "../vendor/htm-preact.module.js";

// Drawn before it is scrolled in.
const MARGIN = "200px";

/** Tells its listeners when `isSeen` has become true. */
class Seen {
  #listeners = new Set();
  isSeen = true;

  subscribe(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  change(isSeen) {
    const hasCome = isSeen && !this.isSeen;
    this.isSeen = isSeen;
    if (hasCome) for (const listener of [...this.#listeners]) listener();
  }
}

/** The part of the page that a component is in; one outside of any part is always seen. */
export const Sight = createContext(new Seen());

/** Whether the element of `ref` is in sight, for `Sight.Provider`. */
export function useSight(ref) {
  const [sight] = useState(() => new Seen());
  useEffect(() => {
    const observer = new IntersectionObserver((entries) => sight.change(entries.at(-1).isIntersecting), { rootMargin: MARGIN });
    observer.observe(ref.current);
    return () => observer.disconnect();
  }, []);
  return sight;
}
