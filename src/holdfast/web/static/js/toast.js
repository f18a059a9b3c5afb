// What an order was answered: it stays for some seconds at the foot of the page, and is read aloud.
//
// It has its own place below the last card, so that nothing can only be reached under it. It stays while the pointer or
// the focus is on it, an error until the next answer or until it is dismissed.

import { sentence } from "./format.js";
import { html, Icon, useEffect, useReducer } from "./ui.js";

const STAYS_MS = 6_000;
const MOST = 2;
let said = [];
let next = 0;
let held = false;
const listeners = new Set();

const changed = () => {
  for (const listener of [...listeners]) listener();
};

export function say(text, isError = false) {
  const one = { id: next++, text, isError };
  said = [...said.filter((old) => !old.isError).slice(1 - MOST), one];
  if (!isError) setTimeout(() => leave(one.id), STAYS_MS);
  changed();
}

/** It goes, as soon as nobody points at the answers. */
function leave(id) {
  if (held) setTimeout(() => leave(id), STAYS_MS);
  else unsay(id);
}

function unsay(id) {
  said = said.filter((one) => one.id !== id);
  held = held && said.length > 0;
  changed();
}

export function Toasts() {
  const [, redraw] = useReducer((n) => n + 1, 0);
  useEffect(() => {
    const pressed = (event) => {
      if (event.key === "Escape" && said.length > 0 && !event.target.closest("dialog")) unsay(said.at(-1).id);
    };
    listeners.add(redraw);
    document.addEventListener("keydown", pressed);
    return () => {
      listeners.delete(redraw);
      document.removeEventListener("keydown", pressed);
    };
  }, []);
  const hold = (isHeld) => () => {
    held = isHeld;
  };
  return html`<div class="toasts" role="status" aria-live="polite" id="replies" onPointerEnter=${hold(true)} onPointerLeave=${hold(false)} onFocusIn=${hold(true)} onFocusOut=${hold(false)}>${said.map(({ id, text, isError }) => html`<div class=${`toast ${isError ? "bad" : ""}`} key=${id}><${Icon} name=${isError ? "warning" : "done"} /><span class="wrap">${sentence(text)}</span>
    <button type="button" class="icon" aria-label="Dismiss" title="Dismiss (Esc)" onClick=${() => unsay(id)}><${Icon} name="close" /></button></div>`)}</div>`;
}
