// The table of trials with its filter, its columns, and what can be done with the selected ones.

import { count } from "../format.js";
import { FilterBox } from "../filter_box.js";
import { compareView, hashOf } from "../route.js";
import { canSteer, TrialActions } from "../steer.js";
import { TrialTable, fitting, titleOf, usualColumns } from "../table.js";
import { html, Dialog, Empty, useMemo, useState } from "../ui.js";

const MOST_COMPARED = 20;

export function Trials({ store, facts, selection, onSelect, view, onView, shown, error, filter, sort, best }) {
  const [chooses, choose] = useState(false);
  const usual = useMemo(() => usualColumns(store, facts), [store.keys.length, store.size > 0, facts.varied?.length, facts.metrics?.length, facts.failures?.length]);
  const [width, setWidth] = useState(1200);
  const columns = useMemo(() => columnsOf(view.cols, store) ?? fitting(usual, store, facts, width), [view.cols, usual, store.keys.length, store.size > 0, width]);
  const left = usual.filter((key) => !columns.includes(key)).length;
  const ids = [...selection];
  return html`<section class="card flush" id="trials" aria-label="Trials">
    <header><h2>Trials</h2>
      <span class="dim" id="trial-count">${selection.size > 0 ? `selected ${selection.size.toLocaleString("en")}, ` : ""}${shown.length === store.size ? count(store.size, "trial") : `shown ${shown.length.toLocaleString("en")} of ${store.size.toLocaleString("en")}`}</span>
      <span class="grow"></span><button type="button" class="small" id="columns" onClick=${() => choose(true)}>Columns${left > 0 ? ` (${left} more)` : ""}</button></header>
    ${store.size === 0
      ? html`<${Empty}>No trials yet: the first appears when the search creates it, within a second of the start of the run.<//>`
      : html`<${FilterBox} store=${store} text=${filter} error=${error} shown=${shown.length} onFilter=${(f) => onView({ f })} />
      ${ids.length > 0 && html`<div class="row selected-actions"><b>${count(ids.length, "trial")} selected</b>
        ${ids.length >= 2 && html`<a class="button small" id="compare" href=${hashOf({ page: "compare", view: compareView(ids.slice(0, MOST_COMPARED).map((trial) => ({ key: facts.key, trial }))) })}>Compare${ids.length > MOST_COMPARED ? ` the first ${MOST_COMPARED}` : ""}</a>`}
        ${canSteer(facts) && html`<${TrialActions} facts=${facts} store=${store} ids=${ids} small />`}
        <button type="button" class="link" onClick=${() => onSelect(new Set())}>Select none</button></div>`}
      <${TrialTable} store=${store} facts=${facts} ids=${shown} columns=${columns} sort=${sort} onSort=${(next) => onView({ sort: next })} selection=${selection} onSelect=${onSelect} best=${best} query=${`${filter} ${sort}`} onWidth=${setWidth} />
      ${shown.length === 0 && html`<${Empty}>No trial passes this filter. <button type="button" class="link" onClick=${() => onView({ f: "" })}>Show all ${store.size.toLocaleString("en")}</button><//>`}`}
    ${chooses && html`<${ColumnChoice} store=${store} facts=${facts} columns=${columns} isChosen=${Boolean(view.cols)} onView=${onView} onClose=${() => choose(false)} />`}
  </section>`;
}

/** The columns of a link; null if it names none that there is. */
function columnsOf(text, store) {
  if (!text) return null;
  const keys = text.split(",").map(decodeURIComponent).filter((key) => store.column(key) !== undefined);
  return keys.length === 0 ? null : keys;
}

function ColumnChoice({ store, facts, columns, isChosen, onView, onClose }) {
  const [search, setSearch] = useState("");
  const set = (keys) => onView({ cols: keys.map(encodeURIComponent).join(",") });
  const toggle = (key) => {
    if (columns.includes(key)) return columns.length > 1 && set(columns.filter((one) => one !== key));
    set([...columns, key]);
  };
  const groups = [["Trial", (key) => !key.includes("/")], ["Parameters", (key) => key.startsWith("config/")], ["Last metrics", (key) => key.startsWith("metrics/")]];
  const fits = (key) => titleOf(key, facts).toLowerCase().includes(search.toLowerCase());
  return html`<${Dialog} title="Columns" onClose=${onClose}>
    <input type="search" aria-label="Search the columns" placeholder="Search" value=${search} onInput=${(event) => setSearch(event.target.value)} />
    <div class="choices">${groups.map(([title, isIn]) => {
      const keys = store.keys.filter((key) => isIn(key) && fits(key)).slice(0, 300);
      return keys.length > 0 && html`<fieldset key=${title}><legend>${title}</legend>${keys.map((key) => html`<label class="check" key=${key}><input type="checkbox" checked=${columns.includes(key)} onChange=${() => toggle(key)} /><span class="wrap">${titleOf(key, facts)}</span></label>`)}</fieldset>`;
    })}</div>
    <div class="actions"><button type="button" onClick=${() => onView({ cols: "" })} disabled=${!isChosen}>The usual ones</button><button type="button" class="primary" onClick=${onClose}>Done</button></div>
  <//>`;
}
