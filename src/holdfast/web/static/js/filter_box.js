// The input for a filter: hints while one types, a sentence if it cannot be used.

import { completions } from "./filter.js";
import { html, useEffect, useRef, useState } from "./ui.js";

const WAIT_MS = 250;

export function FilterBox({ store, text, error, shown, onFilter }) {
  const [typed, setTyped] = useState(text);
  const [offers, setOffers] = useState([]);
  const [at, setAt] = useState(-1);
  const input = useRef();
  const timer = useRef(0);
  const sent = useRef(text);
  useEffect(() => {
    if (text !== sent.current) setTyped(text);
    sent.current = text;
  }, [text]);

  const take = (value) => {
    setTyped(value);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      sent.current = value;
      onFilter(value);
    }, WAIT_MS);
  };
  const offer = () => {
    setOffers(completions(input.current.value, input.current.selectionStart, store));
    setAt(-1);
  };
  const accept = ({ text: word, from }) => {
    const { value, selectionStart } = input.current;
    const space = word.endsWith("[") ? "" : " ";
    const next = `${value.slice(0, from)}${word}${space}${value.slice(selectionStart).trimStart()}`;
    take(next);
    input.current.value = next;
    input.current.setSelectionRange(from + word.length + space.length, from + word.length + space.length);
    input.current.focus();
    offer();
  };
  const pressed = (event) => {
    if (event.key === "Escape") {
      if (offers.length > 0) setOffers([]);
      else if (typed !== "") take("");
      else input.current.blur();
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      if (offers.length === 0) return offer();
      const step = event.key === "ArrowDown" ? 1 : -1;
      setAt(at < 0 ? (step > 0 ? 0 : offers.length - 1) : (at + step + offers.length) % offers.length);
    } else if ((event.key === "Enter" || event.key === "Tab") && at >= 0) {
      accept(offers[at]);
    } else if (event.key === "Enter") {
      setOffers([]);
    } else {
      return;
    }
    if (event.key !== "Tab" || at >= 0) event.preventDefault();
  };
  return html`<div class="filter">
    <input ref=${input} type="text" id="filter" data-search role="combobox" aria-label="Filter the trials" aria-expanded=${String(offers.length > 0)} aria-controls="filter-offers" aria-autocomplete="list"
      aria-activedescendant=${at >= 0 ? `offer-${at}` : null} aria-invalid=${String(error !== null)} aria-describedby="filter-says" autocomplete="off" autocapitalize="off" spellcheck=${false}
      placeholder='Filter: lr < 0.01 and status == "failed"' value=${typed} onInput=${(event) => { take(event.target.value); if (event.target.value === "") setOffers([]); else offer(); }} onKeyDown=${pressed} onBlur=${() => setOffers([])} />
    <ul id="filter-offers" role="listbox" aria-label="Words that fit" hidden=${offers.length === 0}>
      ${offers.map((one, n) => html`<li key=${one.text} id=${`offer-${n}`} role="option" aria-selected=${String(n === at)} onMouseDown=${(event) => { event.preventDefault(); accept(one); }}><span class="mono cut">${one.text}</span>${one.hint !== "" && html`<span class="dim">${one.hint}</span>`}</li>`)}
    </ul>
    <p id="filter-says" role="status" class=${error === null ? "hidden" : "filter-error"}>${error === null ? (text === "" ? "" : `${shown} trials match.`) : html`${error.message} <span class="dim">All trials are shown.</span>`}</p>
  </div>`;
}
