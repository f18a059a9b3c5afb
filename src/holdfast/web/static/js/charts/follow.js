// Components that follow the store.

import { useCallback, useContext, useEffect, useRef, useState } from "../../vendor/htm-preact.module.js";
import { Sight } from "../sight.js";

/**
 * The store's version, at most once in `pace` (ms, or a ref that holds them). A hidden page, and a chart that is scrolled out
 * of sight, wait until they are seen.
 */
export function useVersion(store, pace = 1000) {
  const sight = useContext(Sight);
  const [version, setVersion] = useState(store.version);
  useEffect(() => {
    let timer = 0;
    let shownAt = performance.now();
    const show = () => {
      timer = 0;
      if (document.hidden || !sight.isSeen) return;
      shownAt = performance.now();
      setVersion(store.version);
    };
    const changed = () => {
      const ms = typeof pace === "number" ? pace : pace.current;
      if (timer === 0) timer = setTimeout(show, Math.max(shownAt + ms - performance.now(), 0));
    };
    const stop = store.subscribe(changed);
    const stopSight = sight.subscribe(changed);
    document.addEventListener("visibilitychange", changed);
    changed();
    return () => {
      stop();
      stopSight();
      document.removeEventListener("visibilitychange", changed);
      clearTimeout(timer);
    };
  }, [store, pace, sight]);
  return version;
}

const WAITS = 5;

/**
 * `[version, onDrawn]`: as `useVersion`, but a picture that takes long to draw follows the data less often. The first
 * picture does not count: the browser compiles the library then.
 */
export function usePaced(store) {
  const pace = useRef(1000);
  const isFirst = useRef(true);
  const onDrawn = useCallback((ms) => {
    if (!isFirst.current) pace.current = Math.min(Math.max(ms * WAITS, 1000), 5000);
    isFirst.current = false;
  }, []);
  return [useVersion(store, pace), onDrawn];
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
