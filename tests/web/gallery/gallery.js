// One chart with canned data: /?chart=curves&trials=60&hostile=1. The rest of the query is the chart's view.

import { html, render, useState } from "/static/vendor/htm-preact.module.js";
import { Store } from "/static/js/store.js";
import { api, experiment, trial } from "/canned.js";

const PARTS = { curves: "Curves", parallel: "Parallel", scatter: "Scatter", importance: "Importance", pareto: "Pareto", scheduler: "Scheduler", timeline: "Workers", attempts: "Attempts" };

const { chart, trials = "60", hostile, theme, ...query } = Object.fromEntries(new URLSearchParams(location.search));
if (theme) document.documentElement.dataset.theme = theme;
const { answer, facts } = experiment(Number(trials), hostile === "1");
const store = new Store(answer);
const asked = [];
const answers = api(store, facts, asked);
const { [PARTS[chart]]: Part } = await import(`/static/js/charts/${chart === "attempts" ? "timeline" : chart}.js`);

/** Each trial that runs reports once more. */
function report() {
  const at = (group, place) => Object.fromEntries(Object.entries(group).map(([name, values]) => [name, values[place]]));
  const running = store.ids.map((_, place) => place).filter((place) => store.columns.status[place] === "RUNNING");
  const next = running.map((place) => ({ trial_id: store.ids[place], ...at(store.columns, place), iteration: store.columns.iteration[place] + 1, params: at(store.params, place), metrics: at(store.metrics, place) }));
  store.apply({ version: store.serverVersion + 1, trials: next });
}

function Page() {
  const [selection, setSelection] = useState(new Set());
  const [view, setView] = useState(query);
  Object.assign(window, { gallery: { store, facts, asked, report, selection } });
  return html`<h1>${PARTS[chart]}</h1><${Part} ...${{ store, facts, selection, view, trial: trial(hostile === "1"), api: answers }} shown=${store.ids} onSelect=${setSelection} onView=${(patch) => setView((before) => ({ ...before, ...patch }))} />`;
}

render(html`<${Page} />`, document.getElementById("app"));
