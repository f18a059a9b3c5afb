// The experiments of a place: what runs, how far it is, how good it is.

import { api } from "../api.js";
import { bytes, count, left, number, percent, shortened } from "../format.js";
import { compareView, hashOf } from "../route.js";
import { compared } from "../store.js";
import { listedCondition } from "../words.js";
import { html, Age, Empty, Failed, Progress, State, serverTime, useEffect, useMemo, useState } from "../ui.js";

const SORTS = {
  name: { label: "Name", value: (one) => one.name },
  state: { label: "State", value: (one) => one.state },
  progress: { label: "Progress", value: (one) => one.progress?.share ?? null },
  best: { label: "Best value", value: (one) => one.best?.value ?? null },
  began: { label: "Started", value: (one) => one.began_at, descends: true },
  updated: { label: "Last record", value: (one) => one.updated_at, descends: true },
  size: { label: "Size", value: (one, sizes) => sizes?.[one.key] ?? one.size_bytes, descends: true },
};

function useExperiments() {
  const [state, setState] = useState({ answer: null, error: null });
  const [sizes, setSizes] = useState(null);
  const take = (answer) => {
    serverTime(answer.now);
    setState({ answer, error: null });
  };
  const read = () => api.experiments().then(take, (error) => setState((old) => ({ ...old, error })));
  useEffect(() => {
    read().then(() => api.sizes().then(setSizes, () => setSizes({})));
    return api.experimentsStream({ experiments: take });
  }, []);
  return { ...state, sizes, read };
}

/** Whether an experiment has every word of a search in its name, its state, its tags or its metric. */
function matches(one, words) {
  const text = [one.name, listedCondition(one).word, one.best?.metric, one.storage, ...Object.entries(one.tags ?? {}).map(([name, value]) => `${name}=${value}`)].join(" ").toLowerCase();
  return words.every((word) => text.includes(word));
}

export function ExperimentsPage({ view, onView }) {
  const { answer, error, sizes, read } = useExperiments();
  const [chosen, choose] = useState(() => new Set());
  const sort = view.sort ?? "-began";
  const shown = useMemo(() => {
    const words = (view.q ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    const { value } = SORTS[sort.replace(/^-/, "")] ?? SORTS.began;
    const sign = sort.startsWith("-") ? -1 : 1;
    const keyed = (answer?.experiments ?? []).filter((one) => matches(one, words)).map((one) => [value(one, sizes) ?? null, one]);
    return keyed.sort(([a], [b]) => (a === null || b === null ? (a === null) - (b === null) : sign * compared(a, b))).map(([, one]) => one);
  }, [answer, sizes, view.q, sort]);
  if (answer === null) return error ? html`<${Failed} error=${error} retry=${read} />` : html`<p class="loading">Reading the experiments…</p>`;
  const all = answer.experiments;
  const live = all.filter((one) => one.state === "live").length;
  return html`
    <div class="title"><h1>Experiments</h1>
      <span class="dim">${count(all.length, "experiment")}${live > 0 ? `, ${live} running` : ""} in <span class="path mono">${answer.place}</span></span></div>
    ${error && html`<${Failed} error=${error} retry=${read} />`}
    ${all.length === 0
      ? html`<div class="card" id="no-experiments"><${Empty}>${answer.is_missing ? html`The folder <span class="path mono">${answer.place}</span> does not exist yet.` : "No experiments here yet."} The first experiment appears as soon as a run with <code class="wrap">RunConfig(storage_path="${answer.place}")</code> begins.<//>
        <${Empty}>Did you expect some? Start the page with their folder or URI: <code>holdfast web PATH</code>. <code>holdfast ls</code> shows where your last runs are.<//></div>`
      : html`
    <div class="row tools">
      <input type="search" data-search id="search" aria-label="Search the experiments" placeholder="Search name, state, tag" value=${view.q ?? ""} onInput=${(event) => onView({ q: event.target.value })} />
      <${SortChoice} sort=${sort} onView=${onView} />
      <span class="grow"></span>
      ${chosen.size > 0 && html`<button type="button" class="link" onClick=${() => choose(new Set())}>Select none</button>
        <a class="button" id="compare" href=${hashOf({ page: "compare", view: compareView([...chosen].map((key) => ({ key }))) })}>Compare ${chosen.size}</a>`}
    </div>
    ${shown.length === 0
      ? html`<div class="card"><${Empty}>No experiment matches “${view.q}”. <button type="button" class="link" onClick=${() => onView({ q: "" })}>Show all ${all.length}</button><//></div>`
      : html`<${Listing} shown=${shown} sizes=${sizes} sort=${sort} onView=${onView} chosen=${chosen} choose=${choose} />`}`}
  `;
}

function Listing({ shown, sizes, sort, onView, chosen, choose }) {
  const toggle = (key) => {
    const next = new Set(chosen);
    if (!next.delete(key)) next.add(key);
    choose(next);
  };
  return html`<div class="frame"><table class="listing experiments">
    <thead><tr>
      <th scope="col"><span class="hidden">Select</span></th>
      ${Object.entries(SORTS).map(([name, { label, descends }]) => {
        const is = sort.replace(/^-/, "") === name;
        const next = is ? (sort.startsWith("-") ? name : `-${name}`) : descends ? `-${name}` : name;
        return html`<th scope="col" key=${name} class=${`c-${name}`} aria-sort=${is ? (sort.startsWith("-") ? "descending" : "ascending") : null}>
          <button type="button" onClick=${() => onView({ sort: next })}>${label}${is && html`<span aria-hidden="true">${sort.startsWith("-") ? " ↓" : " ↑"}</span>`}</button></th>`;
      })}
    </tr></thead>
    <tbody>${shown.map((one) => html`<${Row} key=${one.key} one=${one} size=${sizes === null ? undefined : sizes[one.key]} isChosen=${chosen.has(one.key)} toggle=${toggle} />`)}</tbody>
  </table></div>`;
}

function Row({ one, size, isChosen, toggle }) {
  const { progress = {} } = one;
  const trials = Object.entries(one.trials ?? {});
  const failed = one.trials?.ERROR ?? 0;
  const running = one.state === "live" ? one.trials?.RUNNING ?? 0 : 0;
  const total = progress.total ?? trials.reduce((sum, [, n]) => sum + n, 0);
  return html`<tr data-key=${one.key}>
    <td class="c-check"><input type="checkbox" aria-label=${`Select ${one.name}`} checked=${isChosen} onChange=${() => toggle(one.key)} /></td>
    <td class="c-name"><a class="name" href=${hashOf({ page: "experiment", key: one.key })}>${one.name}</a>
      ${Object.entries(one.tags ?? {}).map(([name, value]) => html` <span class="tag" key=${name} title=${`${name}=${value}`}>${name}${value === "" ? "" : `=${value}`}</span>`)}
      ${one.storage !== "" && html`<div class="dim small path">${one.storage}</div>`}
      ${one.problem !== "" && html`<div class=${`small wrap ${one.state === "interrupted" ? "dim" : "tone-bad"}`}>${shortened(one.problem, 160).text}</div>`}</td>
    <td class="c-state"><${State} of=${listedCondition(one)} /></td>
    <td class="c-progress"><${Progress} share=${progress.share ?? null} text="" label=${`Progress of ${one.name}`} />
      <div class="small dim">${[percent(progress.share), one.state === "live" ? left(progress.left_s) : "", one.updated_at === null ? "no record yet" : `${progress.done ?? 0} of ${count(total, "trial")}`].filter(Boolean).join(" · ")}${running > 0 ? ` · ${running} running` : ""}${failed > 0 && html` · <span class="tone-bad">${failed} failed</span>`}</div></td>
    <td class="c-best">${one.best ? html`<b>${number(one.best.value)}</b> <span class="dim small">${one.best.mode} ${one.best.metric}</span>` : one.pareto_front?.length > 0 ? html`<span class="dim">${count(one.pareto_front.length, "trial")} on the Pareto front</span>` : html`<span class="dim">none yet</span>`}</td>
    <td class="c-began"><${Age} at=${one.began_at} /></td>
    <td class="c-updated"><${Age} at=${one.updated_at} /></td>
    <td class="c-size">${size === undefined ? html`<span class="dim">…</span>` : bytes(size) || html`<span class="dim">unknown</span>`}</td>
  </tr>`;
}

/** Narrow pages have no column headers to click on. */
function SortChoice({ sort, onView }) {
  return html`<label class="only-narrow row">Sort by <select value=${sort} onChange=${(event) => onView({ sort: event.target.value })}>
    ${Object.entries(SORTS).map(([name, { label, descends }]) => html`<option key=${name} value=${descends ? `-${name}` : name}>${label}</option>`)}
  </select></label>`;
}
