// Components that follow the store.

import { useEffect, useRef, useState } from "../../vendor/htm-preact.module.js";

/** The store's version, at most once in `ms`; a hidden page waits until it is seen. */
export function useVersion(store, ms = 1000) {
  const [version, setVersion] = useState(store.version);
  useEffect(() => {
    let timer = 0;
    let shownAt = performance.now();
    const show = () => {
      timer = 0;
      if (document.hidden) return;
      shownAt = performance.now();
      setVersion(store.version);
    };
    const changed = () => {
      if (timer === 0) timer = setTimeout(show, Math.max(shownAt + ms - performance.now(), 0));
    };
    const stop = store.subscribe(changed);
    document.addEventListener("visibilitychange", changed);
    changed();
    return () => {
      stop();
      document.removeEventListener("visibilitychange", changed);
      clearTimeout(timer);
    };
  }, [store, ms]);
  return version;
}

/** The id of the hovered trial, or null. */
export function useHovered(store) {
  const [hovered, setHovered] = useState(store.hovered);
  useEffect(() => store.subscribe(() => setHovered(store.hovered)), [store]);
  return hovered;
}

/** The list; the same one as long as its items are the same. */
export function useSame(list) {
  const kept = useRef(list);
  if (kept.current.length !== list.length || kept.current.some((item, at) => item !== list[at])) kept.current = list;
  return kept.current;
}

/** What `load()` resolves to: `{value, error, loading}`; loads again when `keys` change, and keeps the old value meanwhile. */
export function useLoaded(load, keys) {
  const [state, setState] = useState({ value: null, error: null, loading: true });
  const newest = useRef(0);
  useEffect(() => {
    const turn = (newest.current += 1);
    setState((before) => ({ ...before, loading: true }));
    const settle = (next) => turn === newest.current && setState((before) => ({ ...before, loading: false, error: null, ...next }));
    load().then(
      (value) => settle({ value }),
      (error) => settle({ error: error.message }),
    );
    return () => (newest.current += 1);
  }, keys);
  return state;
}
