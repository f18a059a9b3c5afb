// What matters now: the best trial, what runs, what failed.

import { configLine, count, duration, iterations, number, shortened } from "../format.js";
import { TrialLink, trialHash } from "../links.js";
import { failedTrials, stateAt, stateOf } from "../words.js";
import { html, Age, Empty, Icon, Long, State, useState } from "../ui.js";

const SHOWN = 6;

export function Notices({ facts }) {
  const notices = facts.notices ?? [];
  const [all, showAll] = useState(false);
  if (notices.length === 0) return null;
  const shown = all ? notices : notices.slice(-3);
  return html`<section aria-label="Notices" class="stack notices">${shown.map((text, at) => html`<div class="notice" key=${at}><${Icon} name="warning" /><${Long} text=${text} /></div>`)}
    ${notices.length > 3 && html`<div><button type="button" class="link" onClick=${() => showAll(!all)}>${all ? "Show the last three notices" : `Show all ${notices.length} notices`}</button></div>`}</section>`;
}

const configAt = (store, id) => Object.fromEntries(Object.keys(store.params).map((name) => [name, store.value(id, `config/${name}`)]).filter(([, value]) => value !== null));

export function Best({ store, facts, best }) {
  if (Object.keys(facts.goals ?? {}).length > 1) return html`<${Front} store=${store} facts=${facts} />`;
  return html`<section class="card" id="best" aria-label="Best trial"><h2>Best trial</h2>
    ${!facts.metric ? html`<${Empty}>No metric is set, so the page cannot choose a best trial. <code>TuneConfig(metric=..., mode=...)</code> sets one.<//>`
      : best === null ? html`<${Empty}>No trial has reported <span class="mono">${facts.metric}</span> yet. The best appears with the first report.<//>`
      : html`<${Winner} store=${store} facts=${facts} id=${best} />`}
  </section>`;
}

const capital = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}`;

function Winner({ store, facts, id }) {
  const fresh = facts.confirmed?.[0];
  const isConfirmed = typeof fresh?.mean === "number";
  const value = isConfirmed ? fresh.mean : store.value(id, "value");
  const rivals = store.columns.value.filter((one, at) => typeof one === "number" && !Number.isNaN(one) && store.ids[at] !== id);
  const second = rivals.reduce((best, one) => (best === null || (facts.mode === "min" ? one < best : one > best) ? one : best), null);
  const status = store.value(id, "status");
  return html`
    <p class="figure-line"><b class="big">${number(value)}</b> <span class="mono">${facts.metric}</span> <span class="dim">in trial</span> <${TrialLink} store=${store} facts=${facts} id=${id} long /></p>
    <p class="dim">${capital(iterations(store.value(id, "iteration") - 1, store.value(id, "iteration")))}, after ${duration(store.value(id, "time_total_s"))} of training; <${State} of=${stateAt(store, store.position(id))} />${status === "ERROR" ? html` after this report: <${Long} text=${store.value(id, "error") ?? ""} length=${200} />` : ""}</p>
    ${facts.confirmation && html`<p class="dim">${capital(facts.confirmation)}.</p>`}
    ${!isConfirmed && html`<p class="dim small">The ${facts.mode === "min" ? "lowest" : "highest"} value in the last reports of ${count(rivals.length + 1, "trial")}, as <code>holdfast best</code> chooses: running, stopped and failed trials count.${second !== null ? ` The next is ${number(second)}.` : ""}</p>`}
    <p class="mono wrap config">${shortened(configLine(configAt(store, id), facts.varied), 600).text}</p>`;
}

function Front({ store, facts }) {
  const ids = facts.pareto_front ?? [];
  const goals = Object.entries(facts.goals).map(([name, mode]) => `${mode} ${name}`).join(", ");
  const [all, showAll] = useState(false);
  return html`<section class="card" id="best" aria-label="Pareto front"><h2>Pareto front</h2>
    ${ids.length === 0 ? html`<${Empty}>No trial has reported every goal (${goals}) yet.<//>` : html`<p class="dim">${count(ids.length, "trial")} that no other trial beats in every goal: ${goals}.</p>
    <ul class="list">${(all ? ids : ids.slice(0, SHOWN)).map((id) => html`<li key=${id}><${TrialLink} store=${store} facts=${facts} id=${id} long /> ${Object.keys(facts.goals).map((name) => html`<span key=${name}> <span class="dim">${name}</span> <b>${number(store.value(id, `metrics/${name}`) ?? NaN)}</b></span>`)}</li>`)}</ul>
    ${ids.length > SHOWN && html`<button type="button" class="link" onClick=${() => showAll(!all)}>${all ? "Show fewer" : `Show all ${ids.length}`}</button>`}`}
  </section>`;
}

export function Running({ store, facts, onFilter }) {
  const running = store.ids.filter((_, at) => ["RUNNING", "STARTING", "STOPPING"].includes(store.columns.status[at]));
  const isLive = facts.state === "live"; // else these are the trials that a restore continues
  if (!isLive && running.length === 0) return null;
  const waiting = facts.progress?.waiting_text ?? "";
  return html`<section class="card" id="running" aria-label=${isLive ? "Running now" : "Interrupted"}><h2>${isLive ? "Running now" : "Interrupted"}${running.length > 0 && html` <span class="dim">${running.length}</span>`}</h2>
    ${running.length === 0
      ? html`<${Empty}>${waiting || "No trial runs at the moment."}<//>`
      : html`<table class="plain compact"><thead class="hidden"><tr><th scope="col">Trial</th><th scope="col">Iteration</th><th scope="col">Value</th><th scope="col">Last report</th></tr></thead>
        <tbody>${running.slice(0, SHOWN).map((id) => html`<${Runner} key=${id} store=${store} facts=${facts} id=${id} />`)}</tbody></table>
      ${running.length > SHOWN && html`<button type="button" class="link" onClick=${() => onFilter(isLive ? "status in [running, pausing, starting, stopping]" : "status == interrupted")}>Show all ${running.length} in the table</button>`}
      ${waiting && html`<p class="dim small waiting">${waiting}</p>`}`}
    ${(facts.queued_configs ?? []).length > 0 && html`<p class="dim small">${count(facts.queued_configs.length, "added config")} ${facts.queued_configs.length === 1 ? "waits" : "wait"} to start next.</p>`}
  </section>`;
}

function Runner({ store, facts, id }) {
  const of = (key) => store.value(id, key);
  return html`<tr onMouseEnter=${() => store.hover(id)} onMouseLeave=${() => store.hover(null)}>
    <td><${TrialLink} store=${store} facts=${facts} id=${id} long />${facts.state === "live" && (of("status") !== "RUNNING" || of("pausing")) ? html` <${State} of=${stateOf(of("status"), "", of("pausing"))} />` : ""}</td>
    <td class="nowrap"><span class="dim">iteration</span> ${of("iteration")}</td>
    <td class="num">${of("value") === null ? "" : number(of("value"))}</td>
    <td class="num dim nowrap">${of("reported_at") === null ? "no report yet" : html`<${Age} at=${of("reported_at")} />`}</td></tr>`;
}

export function Failures({ store, facts, onFilter, select }) {
  const causes = facts.failures ?? [];
  const listed = new Set(causes.flatMap((cause) => cause.trial_ids ?? [cause.trial_id]));
  const retried = store.ids.filter((id, at) => store.columns.failures[at] > 0 && store.columns.status[at] !== "ERROR" && !listed.has(id));
  return html`<section class="card" id="failures" aria-label="Failures"><h2>Failures${causes.length > 0 && html` <span class="dim">${count(failedTrials(causes), "trial")}, ${count(causes.length, "cause")}</span>`}</h2>
    ${causes.length === 0 && html`<${Empty}>No trial has failed${retried.length > 0 ? " for good" : ""}.<//>`}
    <ul class="list">${causes.slice(0, 20).map((cause, at) => html`<${Cause} key=${at} cause=${cause} store=${store} facts=${facts} select=${select} />`)}</ul>
    ${retried.length > 0 && html`<p class="small">${count(retried.length, causes.length > 0 ? "other trial" : "trial")} failed and ${retried.length === 1 ? "was" : "were"} retried: ${retried.slice(0, SHOWN).map((id, at) => html`${at > 0 ? ", " : ""}<${TrialLink} key=${id} store=${store} facts=${facts} id=${id} />${store.value(id, "failures") > 1 ? ` (${store.value(id, "failures")} times)` : ""}`)}${retried.length > SHOWN ? ", …" : ""}. <button type="button" class="link" onClick=${() => onFilter("failures > 0 and status != failed")}>Show ${retried.length === 1 ? "it" : "them"} in the table</button></p>`}
  </section>`;
}

/** `on node a`, or `on nodes a (3), b (1)`: how many of the trials failed there. */
function nodesOf({ node, nodes }) {
  const found = Object.entries(nodes ?? {});
  if (found.length < 2) return node && `on node ${node}`;
  const more = found.length > SHOWN ? `, and ${found.length - SHOWN} more` : "";
  return `on nodes ${found.slice(0, SHOWN).map(([name, trials]) => `${name} (${trials})`).join(", ")}${more}`;
}

function Cause({ cause, store, facts, select }) {
  const ids = cause.trial_ids ?? [cause.trial_id];
  return html`<li><div class="row at-top"><span class="tone-bad"><${Icon} name="failed" /></span><span class="grow"><b><${Long} text=${cause.headline ?? ""} length=${200} /></b></span></div>
    <div class="small dim wrap">${[cause.where && `at ${cause.where}`, nodesOf(cause), cause.final === false && "retried"].filter(Boolean).join(" · ")}</div>
    <div class="small">${count(cause.trials, "trial")}: ${ids.slice(0, 8).map((id, at) => html`${at > 0 ? ", " : ""}<${TrialLink} key=${id} store=${store} facts=${facts} id=${id} />`)}${cause.trials > 8 ? `, and ${cause.trials - 8} more` : ""}${" · "}<a href=${trialHash(facts, cause.trial_id)}>traceback and logs</a>${ids.length > 1 && html` · <button type="button" class="link" onClick=${() => select(ids)}>select ${ids.length === cause.trials ? "them" : `the first ${ids.length}`}</button>`}</div></li>`;
}
