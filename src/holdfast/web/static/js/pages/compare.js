// Trials and experiments next to each other.

import { api } from "../api.js";
import { bestOf, jointId, jointRows, jointStore, rowsOf } from "../compared.js";
import { count, duration, flat, plain } from "../format.js";
import { comparedThings, compareView, hashOf } from "../route.js";
import { Store } from "../store.js";
import { conditionOf, isFinal, stateOf } from "../words.js";
import { html, Age, Chart, Empty, Failed, Icon, Long, State, useEffect, useLoaded, useMemo, useReducer, useState } from "../ui.js";

const EVERY_MS = 5000;

/** A thing with what is shown of it: `{key, facts, trial, isWhole}`; an experiment stands with its best trial. */
async function read({ key, trial: id }) {
  const facts = await api.facts(key);
  const best = id ? null : new Store(await api.trials(key)).leader(facts) ?? facts.pareto_front?.[0] ?? null;
  const wanted = id ?? best;
  return { key, facts, isWhole: !id, trial: wanted === null ? null : await api.trial(key, wanted), id };
}

/** Those that can be read, and the sentences of the others. */
async function readAll(things) {
  const answers = await Promise.allSettled(things.map(read));
  return answers.map((answer, at) => (answer.status === "fulfilled" ? answer.value : { key: things[at].key, id: things[at].trial, error: answer.reason }));
}

export function ComparePage({ view, onView }) {
  const things = useMemo(() => comparedThings(view), [view.e, view.t]);
  const [turn, again] = useReducer((n) => n + 1, 0);
  const { value: all, error } = useLoaded(() => readAll(things), [view.e, view.t, turn]);
  const isLive = (all ?? []).some(({ facts, trial }) => facts?.state === "live" && !(trial && isFinal(trial.status)));
  useEffect(() => {
    if (!isLive) return undefined;
    const timer = setInterval(() => document.hidden || again(), EVERY_MS);
    return () => clearInterval(timer);
  }, [isLive]);
  const remove = (at) => onView({ ...compareView(things.filter((_, other) => other !== at)) });
  const add = (thing) => onView(compareView([...things, thing]));
  return html`<div class="stack"><div class="title"><h1>Compare</h1><span class="dim">${things.length > 0 && count(things.length, "column")}</span></div>
    <section class="card" aria-label="Add to the comparison"><${Add} onAdd=${add} /></section>
    ${error && html`<${Failed} error=${error} />`}
    ${things.length === 0 ? html`<div class="card"><${Empty}>Nothing to compare yet. Select experiments in the list, or trials in an experiment's table, and press Compare; or add them above.<//></div>`
      : all === null ? html`<p class="loading">Reading…</p>` : html`<${Comparison} all=${all} remove=${remove} view=${view} onView=${onView} />`}
  </div>`;
}

function Add({ onAdd }) {
  const { value } = useLoaded(() => api.experiments(), []);
  const [key, setKey] = useState("");
  const [text, setText] = useState("");
  const [error, setError] = useState(null);
  const keys = (value?.experiments ?? []).map((one) => one.key);
  const submit = async (event) => {
    event.preventDefault();
    const wanted = text.trim().replace(/^#/, "");
    setError(null);
    if (wanted === "") return onAdd({ key: key || keys[0] });
    try {
      const store = new Store(await api.trials(key || keys[0]));
      const id = store.ids.find((one, at) => one === wanted || String(store.columns.index[at]) === wanted);
      if (id === undefined) throw new Error(`${key || keys[0]} has no trial “${wanted.slice(0, 40)}”. Write a trial's id, or its number.`);
      onAdd({ key: key || keys[0], trial: id });
      setText("");
    } catch (failed) {
      setError(failed);
    }
  };
  return html`<form class="row" onSubmit=${submit}><label>Experiment <select value=${key || keys[0]} onChange=${(event) => setKey(event.target.value)}>${keys.map((one) => html`<option key=${one} value=${one}>${one}</option>`)}</select></label>
    <label>Trial <input type="text" size="14" placeholder="id or number" value=${text} onInput=${(event) => setText(event.target.value)} /></label>
    <button type="submit" disabled=${keys.length === 0}>Add</button><span class="dim small">Leave it empty to compare the whole experiment by its best trial.</span>${error && html`<${Failed} error=${error} />`}</form>`;
}

function Comparison({ all, remove, view, onView }) {
  const there = all.filter(({ trial }) => trial);
  const configs = rowsOf(all.map(({ trial }) => flat(trial?.config ?? {})));
  const metrics = rowsOf(all.map(({ trial }) => flat(trial?.metrics ?? {})));
  const [showsAll, showAll] = useState(false);
  const same = configs.filter(({ differs }) => !differs).length;
  const modes = Object.assign({}, ...all.map(({ facts }) => (facts?.metric ? { [facts.metric]: facts.mode, ...facts.goals } : facts?.goals ?? {})));
  return html`<section class="card" aria-label="Comparison"><div class="comparison" tabindex="0" role="group" aria-label="Table that compares"><table>
    <thead><tr><th scope="col"><span class="hidden">What</span></th>${all.map((one, at) => html`<${ColumnHead} key=${at} one=${one} remove=${() => remove(at)} />`)}</tr></thead>
    <tbody>
      <${Line} name="State" cells=${all.map(({ facts, trial, isWhole }) => (facts ? html`<${State} of=${isWhole || !trial ? conditionOf(facts.state) : stateOf(trial.status, trial.stop_reason)} />` : ""))} />
      <${Line} name="Trials" cells=${all.map(({ facts, isWhole }) => (facts && isWhole ? `${Object.values(facts.counts).reduce((sum, n) => sum + n, 0)}${facts.counts.ERROR ? `, ${facts.counts.ERROR} failed` : ""}` : ""))} />
      <${Line} name="Value" cells=${all.map(({ facts, trial }) => (trial && facts.metric ? html`<b>${trial.value === null ? "none yet" : plain(trial.value)}</b> <span class="dim small">${facts.mode} ${facts.metric}</span>` : ""))} />
      <${Line} name="Iteration" cells=${all.map(({ trial }) => trial?.iteration.toLocaleString("en") ?? "")} />
      <${Line} name="Trained for" cells=${all.map(({ trial }) => duration(trial?.time_total_s))} />
      <${Line} name="Last report" cells=${all.map(({ trial }) => (trial?.reported_at ? html`<${Age} at=${trial.reported_at} />` : ""))} />
      <${Line} name="Note" cells=${all.map(({ trial }) => trial?.note && html`<${Long} text=${trial.note} length=${120} />`)} />
      <tr class="group"><th scope="rowgroup">Parameters</th><td colspan=${all.length}><span class="dim">${same === 0 ? "" : showsAll ? "" : `${count(same, "equal parameter")} hidden. `}</span>${same > 0 && html`<button type="button" class="link" onClick=${() => showAll(!showsAll)}>${showsAll ? "Show only what differs" : "Show all"}</button>`}</td></tr>
      ${configs.filter(({ differs }) => differs || showsAll || all.length === 1).map(({ name, values, differs }) => html`<${Line} key=${name} name=${name} isName cells=${values.map((value) => html`<${Value} value=${value} />`)} differs=${differs} />`)}
      <tr class="group"><th scope="rowgroup">Last metrics</th><td colspan=${all.length}></td></tr>
      ${metrics.map(({ name, values }) => html`<${Line} key=${name} name=${name} isName cells=${values.map((value) => html`<${Value} value=${value} />`)} tops=${bestOf(values, modes[name])} />`)}
    </tbody></table></div></section>
    ${there.length > 0 && html`<${Curves} there=${there} view=${view} onView=${onView} />`}`;
}

function ColumnHead({ one: { key, id, error, trial, isWhole }, remove }) {
  const name = id ? `${key}, trial ${id}` : key;
  return html`<th scope="col"><div class="row"><a href=${hashOf(id ? { page: "trial", key, trial: id } : { page: "experiment", key })}><b>${key}</b>${id && html`<br /><span class="mono">${trial ? `#${trial.index} ` : ""}${id}</span>`}</a>
    <button type="button" class="icon small" aria-label=${`Remove ${name}`} onClick=${remove}><${Icon} name="close" /></button></div>
    ${isWhole && trial && html`<div class="dim small">best: <a href=${hashOf({ page: "trial", key, trial: trial.trial_id })}>#${trial.index}</a></div>`}
    ${error && html`<div class="tone-bad small">${error.message}</div>`}</th>`;
}

const Line = ({ name, cells, isName = false, differs = false, tops = [] }) =>
  cells.some((cell) => cell !== "" && cell !== null && cell !== undefined) && html`<tr class=${differs ? "differs-line" : ""}><th scope="row" class=${isName ? "mono" : "dim"}>${name}</th>${cells.map((cell, at) => html`<td key=${at} class=${tops.includes(at) ? "top-value" : ""}>${cell}${tops.includes(at) && html` <span class="star" title="The best of these"><${Icon} name="star" /></span>`}</td>`)}</tr>`;

const Value = ({ value }) => (value === undefined ? html`<span class="dim">not set</span>` : html`<span class="mono"><${Long} text=${plain(value)} length=${160} /></span>`);

function Curves({ there, view, onView }) {
  const [selection, onSelect] = useState(() => new Set());
  const store = useMemo(() => jointStore(there), [there]);
  const rows = useMemo(() => ({ ...api, rows: jointRows(api.rows) }), []);
  const ids = there.map(({ key, trial }) => jointId(key, trial.trial_id));
  const facts = { ...there[0].facts, key: "compare", metrics: [...new Set(there.flatMap(({ facts: one }) => one.metrics ?? []))] };
  const shown = selection.size > 0 ? selection : new Set(ids);
  return html`<section class="card" id="curves" aria-label="Curves"><h2>Curves</h2><${Chart} file="curves" part="Curves" store=${store} facts=${facts} selection=${shown} onSelect=${onSelect} shown=${ids} api=${rows} view=${view} onView=${onView} /></section>`;
}
