// How an experiment is doing, in one card.

import { count, duration, left, number, percent } from "../format.js";
import { conditionOf, stateAt } from "../words.js";
import { html, Age, Progress, State } from "../ui.js";

/** `[{state, n}]` of all trials, by the words of the table. */
function states(store) {
  const found = new Map();
  store.ids.forEach((_, at) => {
    const state = stateAt(store, at);
    found.set(state.word, { state, n: (found.get(state.word)?.n ?? 0) + 1 });
  });
  return [...found.values()].sort((a, b) => TONES.indexOf(a.state.tone) - TONES.indexOf(b.state.tone) || b.n - a.n);
}

const TONES = ["accent", "held", "good", "dim", "bad"];

/** `5.2 reports/s`, `140 trials/h`. */
function throughput({ reports_per_s, trials_per_hour }) {
  const reports = typeof reports_per_s === "number" && (reports_per_s >= 0.1 ? `${number(+reports_per_s.toPrecision(3))} reports/s` : `${number(+(reports_per_s * 60).toPrecision(3))} reports/min`);
  const trials = typeof trials_per_hour === "number" && `${number(+trials_per_hour.toPrecision(3))} trials/h`;
  return [reports, trials].filter(Boolean);
}

export function Head({ store, facts }) {
  const { progress } = facts;
  const isLive = facts.state === "live";
  const counts = store.counts();
  const done = (counts.TERMINATED ?? 0) + (counts.ERROR ?? 0);
  const total = facts.total ?? null;
  const pace = throughput(progress);
  const words = [percent(progress.share), isLive ? left(progress.left_s) : ""].filter(Boolean).join(", ");
  return html`<section class="card" aria-label="Progress">
    <div class="row headline"><${State} of=${conditionOf(facts.state)} />
      <span>${facts.trainable && html`<span class="mono">${facts.trainable}</span>`}${facts.metric && html` <span class="dim">${facts.mode === "min" ? "minimises" : "maximises"}</span> <span class="mono">${facts.metric}</span>`}</span>
      ${Object.entries(facts.tags ?? {}).map(([name, value]) => html`<span class="tag" key=${name} title=${`${name}=${value}`}>${name}${value === "" ? "" : `=${value}`}</span>`)}
      <span class="grow"></span><span class="dim">last record <${Age} at=${facts.updated_at} /></span></div>
    <${Progress} share=${progress.share} text=${words} label="Progress of the experiment" />
    <div class="tiles">
      <${Tile} label="Trials ended" figure=${`${done.toLocaleString("en")}${total === null ? "" : ` of ${total.toLocaleString("en")}`}`} />
      ${isLive ? html`<${Tile} label="Time left" figure=${left(progress.left_s).replace(/ left$/, "") || "not known yet"} />` : html`<${Tile} label=${facts.state === "interrupted" ? "Interrupted" : "Ended"} figure=${html`<${Age} at=${facts.updated_at} />`} />`}
      <${Tile} label="Throughput" figure=${pace[0] ?? (isLive ? "no report yet" : "–")} more=${pace[1]} />
      <${Tile} label="Started" figure=${html`<${Age} at=${facts.began_at} />`} more=${`active for ${duration(facts.active_s)}${facts.restores > 0 ? `, ${count(facts.restores, "restore")}` : ""}`} />
      <div class="tile states"><div class="label">States</div><div class="row">${states(store).map(({ state, n }) => html`<span key=${state.word} class="nowrap"><b>${n.toLocaleString("en")}</b> <${State} of=${state} /></span>`)}${facts.not_created > 0 && html`<span class="dim nowrap">${facts.not_created.toLocaleString("en")} not created yet</span>`}</div></div>
    </div>
    ${facts.state !== "live" && facts.ending && html`<p class="wrap ending"><span class="dim">Ended:</span> ${facts.ending.slice(0, 1000)}</p>`}
    ${facts.state === "interrupted" && html`<p class="dim">To continue it: <code class="wrap">holdfast resume ${facts.path}</code></p>`}
  </section>`;
}

const Tile = ({ label, figure, more }) => html`<div class="tile"><div class="label">${label}</div><div class="figure">${figure}</div>${more && html`<div class="dim small">${more}</div>`}</div>`;
