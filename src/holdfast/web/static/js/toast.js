// What an order was answered: it stays for some seconds in a corner, and is read aloud.

import { sentence } from "./format.js";
import { html, Icon, useEffect, useReducer } from "./ui.js";

const STAYS_MS = 12_000;
let said = [];
let next = 0;
const listeners = new Set();

const changed = () => {
  for (const listener of [...listeners]) listener();
};

export function say(text, isError = false) {
  const one = { id: next++, text, isError };
  said = [...said.slice(-3), one];
  setTimeout(() => unsay(one.id), STAYS_MS);
  changed();
}

function unsay(id) {
  said = said.filter((one) => one.id !== id);
  changed();
}

export function Toasts() {
  const [, redraw] = useReducer((n) => n + 1, 0);
  useEffect(() => {
    listeners.add(redraw);
    return () => listeners.delete(redraw);
  }, []);
  return html`<div class="toasts" role="status" id="replies">${said.map(({ id, text, isError }) => html`<div class=${`toast ${isError ? "bad" : ""}`} key=${id}><${Icon} name=${isError ? "warning" : "done"} /><span class="wrap">${sentence(text)}</span>
    <button type="button" class="icon" aria-label="Dismiss" onClick=${() => unsay(id)}><${Icon} name="close" /></button></div>`)}</div>`;
}
