// Small parts that every page uses.

import { html, render, Component, createContext, useState, useEffect, useLayoutEffect, useRef, useMemo, useCallback, useContext, useReducer, useErrorBoundary } from "../vendor/htm-preact.module.js";
import { persistently } from "./api.js";
import { ago, clock, left, percent, shortened } from "./format.js";

export { html, render, Component, createContext, useState, useEffect, useLayoutEffect, useRef, useMemo, useCallback, useContext, useReducer, useErrorBoundary };

/** Symbols as paths in a box of 16: a font may lack them, and each is told apart without its colour. */
const SYMBOLS = {
  running: "M5 3.2v9.6l8-4.8z",
  waiting: "M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11zm0 1.5a4 4 0 1 1 0 8 4 4 0 0 1 0-8z",
  starting: "M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11zm0 1.5a4 4 0 0 1 0 8z",
  paused: "M4.5 3h2.6v10H4.5zM8.9 3h2.6v10H8.9z",
  done: "m6.4 12.6-4-4 1.3-1.3 2.7 2.7 5.9-5.9 1.3 1.3z",
  pruned: "M2.5 4h11L8 12.5z",
  failed: "m4.2 3 3.8 3.8L11.8 3 13 4.2 9.2 8l3.8 3.8-1.2 1.2L8 9.2 4.2 13 3 11.8 6.8 8 3 4.2z",
  stopped: "M3.5 3.5h9v9h-9z",
  warning: "M8 1.8 15 14H1zM7.2 6v4h1.6V6zm0 5v1.5h1.6V11z",
  unknown: "M3 7h10v2H3z",
  note: "M3 2.5h10v8l-3 3H3zM5 5.2v1.2h6V5.2zm0 2.6V9h4V7.8z",
  theme: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zm0 1.6v8.8a4.4 4.4 0 0 1 0-8.8z",
  close: "m4.2 3 3.8 3.8L11.8 3 13 4.2 9.2 8l3.8 3.8-1.2 1.2L8 9.2 4.2 13 3 11.8 6.8 8 3 4.2z",
  star: "m8 1.6 1.9 4.2 4.5.4-3.4 3 1 4.5L8 11.3l-4 2.4 1-4.5-3.4-3 4.5-.4z",
};

export const Icon = ({ name }) =>
  html`<svg class="symbol" viewBox="0 0 16 16" aria-hidden="true" focusable="false"><path fill-rule="evenodd" d=${SYMBOLS[name] ?? SYMBOLS.unknown} /></svg>`;

export const State = ({ of }) => html`<span class=${`state tone-${of.tone}`}><${Icon} name=${of.symbol} />${of.word}</span>`;

// One timer makes every age on the page tick.
const tickers = new Set();
let skew = 0;
setInterval(() => {
  if (!document.hidden) for (const tick of [...tickers]) tick();
}, 1000);

/** The server's clock, which is what the times of an experiment are compared with. */
export const now = () => Date.now() / 1000 + skew;

export function serverTime(at) {
  if (typeof at === "number") skew = at - Date.now() / 1000;
}

export function useTick() {
  const [, tick] = useReducer((n) => n + 1, 0);
  useEffect(() => {
    tickers.add(tick);
    return () => tickers.delete(tick);
  }, []);
}

export function Age({ at }) {
  useTick();
  if (at === null || at === undefined) return "";
  return html`<time datetime=${new Date(at * 1000).toISOString()} title=${clock(at)}>${ago(at, now())}</time>`;
}

/** Draws the component again when the trials change; not when another one is hovered. */
export function useStore(store) {
  const [, seen] = useState(store.version);
  useEffect(() => {
    seen(store.version);
    return store.subscribe(() => seen(store.version));
  }, [store]);
  return store.version;
}

/** A bar with its share in words. `share` null: it is not known how much there is to do. */
export function Progress({ share, left_s, label, text }) {
  const known = typeof share === "number";
  const words = text ?? [known ? percent(share) : "", left(left_s)].filter(Boolean).join(", ");
  return html`<div class="progress">
    ${known && html`<div class="bar" role="progressbar" aria-label=${label} aria-valuemin="0" aria-valuemax="100" aria-valuenow=${Math.round(share * 100)} aria-valuetext=${words || percent(share)}>
      <div class="done" style=${{ width: `${Math.min(100, Math.max(0, share * 100))}%` }}></div>
    </div>`}
    <span class="progress-text">${words}</span>
  </div>`;
}

/** Whether the window is as narrow as a phone: some parts then have another place. */
export function useNarrow() {
  const [query] = useState(() => matchMedia("(max-width: 700px)"));
  const [isNarrow, setNarrow] = useState(query.matches);
  useEffect(() => {
    const changed = () => setNarrow(query.matches);
    query.addEventListener("change", changed);
    return () => query.removeEventListener("change", changed);
  }, []);
  return isNarrow;
}

/** A text of an experiment: it may have megabytes. */
export function Long({ text, length, block = false }) {
  const [all, showAll] = useState(false);
  const short = shortened(text, length);
  const Tag = block ? "pre" : "span";
  return html`<${Tag} class=${block ? "long block" : "long"}>${all ? text : short.text}${!short.isWhole &&
  html` <button type="button" class="link" onClick=${() => showAll(!all)}>${all ? "show less" : `show all (${text.length.toLocaleString("en")} characters)`}</button>`}</${Tag}>`;
}

export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;

export function Failed({ error, retry }) {
  if (error.status === 503) return html`<p class="loading" role="status">The run is starting. It appears here with its first record.</p>`;
  return html`<div class="failed" role="alert"><${Icon} name="warning" /><span>${error.message}</span>
    ${retry && html`<button type="button" onClick=${retry}>Try again</button>`}</div>`;
}

/** What `load()` answers: `{value, error, again}`; the old value stays while a new one is read. */
export function useLoaded(load, inputs) {
  const [state, setState] = useState({ value: null, error: null });
  const [turn, again] = useReducer((n) => n + 1, 0);
  useEffect(() => {
    let isWanted = true;
    load().then(
      (value) => isWanted && setState({ value, error: null }),
      (error) => isWanted && setState((old) => ({ value: old.value, error })),
    );
    return () => {
      isWanted = false;
    };
  }, [...inputs, turn]);
  return { ...state, again };
}

/** A dialog of the browser: it keeps the focus, and Esc closes it. One with a form begins in its first field, else at Cancel. */
export function Dialog({ title, onClose, children, wide = false }) {
  const dialog = useRef();
  useLayoutEffect(() => {
    const [opener, element] = [document.activeElement, dialog.current];
    element.showModal();
    // else the browser takes the first button, Close: a person who types and presses Enter would close the dialog
    const first = element.querySelector("form :is(input, select, textarea)") ?? element.querySelector("form button");
    first?.focus();
    first?.select?.();
    return () => {
      element.close(); // else what is outside could not take the focus
      opener?.focus?.();
    };
  }, []);
  return html`<dialog ref=${dialog} class=${wide ? "wide" : ""} aria-labelledby="dialog-title" onCancel=${(event) => { event.preventDefault(); onClose(); }}
    onClick=${(event) => event.target === dialog.current && onClose()}>
    <div class="dialog-body">
      <header><h2 id="dialog-title">${title}</h2>
        <button type="button" class="icon" aria-label="Close" onClick=${onClose}><${Icon} name="close" /></button></header>
      ${children}
    </div>
  </dialog>`;
}

/** A chart, loaded when it is first shown: `name` of the file, `part` its component. */
export function Chart({ file, part, ...props }) {
  const { value, error, again } = useLoaded(() => persistently(() => import(`./charts/${file}.js`), [300, 900, 2700]), [file]);
  if (error !== null) return html`<${Failed} error=${new Error("The chart could not be loaded from the server.")} retry=${again} />`;
  if (value === null) return html`<p class="loading">Loading the chart…</p>`;
  return html`<${Guarded} part=${value[part]} ...${props} />`;
}

/** An error in one chart leaves the page as it is. */
function Guarded({ part: Part, ...props }) {
  const [error, reset] = useErrorBoundary();
  if (error) return html`<${Failed} error=${new Error(`This chart failed: ${error.message}`)} retry=${reset} />`;
  return html`<${Part} ...${props} />`;
}

/** Tabs: arrow keys move between them. `tabs` is `[{id, label}]`. */
export function Tabs({ label, tabs, chosen, onChoose, children }) {
  const list = useRef();
  const move = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const at = tabs.findIndex(({ id }) => id === chosen);
    const next = step ? tabs[(at + step + tabs.length) % tabs.length] : { Home: tabs[0], End: tabs.at(-1) }[event.key];
    if (!next) return;
    event.preventDefault();
    onChoose(next.id);
    list.current.querySelector(`#tab-${next.id}`)?.focus();
  };
  return html`<div class="tabs">
    <div role="tablist" aria-label=${label} ref=${list} onKeyDown=${move}>
      ${tabs.map(({ id, label }) => html`<button type="button" role="tab" key=${id} id=${`tab-${id}`} aria-selected=${String(id === chosen)} aria-controls="tab-panel" tabindex=${id === chosen ? 0 : -1} onClick=${() => onChoose(id)}>${label}</button>`)}
    </div>
    <div role="tabpanel" id="tab-panel" aria-labelledby=${`tab-${chosen}`}>${children}</div>
  </div>`;
}
