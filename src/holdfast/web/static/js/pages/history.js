// What happened to an experiment, its nodes, and how it was set up.

import { bytes, clock, count, duration, number } from "../format.js";
import { TrialLink } from "../links.js";
import { html, Age, Empty, Icon, Long, now, useState } from "../ui.js";

const SHOWN = 6;

const MARKS = {
  began: ["running", "accent"], restored: ["running", "accent"], ended: ["done", "good"], interrupted: ["paused", "held"],
  node_joined: ["running", "dim"], node_left: ["stopped", "held"], limit: ["unknown", "dim"], added: ["star", "dim"], stopper: ["stopped", "dim"], budget: ["stopped", "dim"], note: ["note", "dim"],
};

/** The newest first: a page that is kept open is looked at from the top. */
export function Happened({ facts }) {
  const events = facts.timeline ?? [];
  const [all, showAll] = useState(false);
  const shown = [...events].reverse().slice(0, all ? events.length : SHOWN);
  return html`<section class="card" id="happened" aria-label="What happened"><h2>What happened</h2>
    ${events.length === 0 && html`<${Empty}>Nothing yet. Starts, restores, nodes and what a person changes appear here.<//>`}
    <ol class="happened">${shown.map((event, at) => html`<${Happening} key=${events.length - at} event=${event} />`)}</ol>
    ${events.length > SHOWN && html`<button type="button" class="link" onClick=${() => showAll(!all)}>${all ? "Show the newest" : `Show all ${events.length} events`}</button>`}
  </section>`;
}

function Happening({ event: { at, kind, text } }) {
  const [symbol, tone] = Object.hasOwn(MARKS, kind) ? MARKS[kind] : ["unknown", "dim"];
  return html`<li><span class=${`tone-${tone}`}><${Icon} name=${symbol} /></span><div><${Long} text=${text ?? ""} /><div class="dim small">${clock(at, now())} · <${Age} at=${at} /></div></div></li>`;
}

const amounts = (held = {}, all = {}) => Object.keys(all).map((name) => (name === "memory" ? `${bytes(held[name] ?? 0)} of ${bytes(all[name])} memory` : `${number(held[name] ?? 0)} of ${number(all[name])} ${name}`)).join(", ");

export function Nodes({ facts, store }) {
  if (!facts.nodes || facts.nodes.length === 0) return null;
  const there = facts.nodes.filter(({ state }) => state !== "left").length;
  return html`<section class="card" id="nodes" aria-label="Nodes"><h2>Nodes <span class="dim">${there} here</span></h2>
    <div class="scroll" tabindex="0" role="group" aria-label="Table of nodes"><table class="plain"><thead><tr><th scope="col">Node</th><th scope="col">State</th><th scope="col">Trials hold</th><th scope="col">Trials</th><th scope="col">Joined</th><th scope="col">Last heard</th><th scope="col">Free disk</th></tr></thead>
    <tbody>${facts.nodes.map((node) => html`<tr key=${node.name}><th scope="row"><b>${node.name}</b> <span class="dim">${node.hostname === node.name ? "" : node.hostname}</span></th>
      <td>${node.state === "here" ? html`<span class="tone-good"><${Icon} name="done" /> here</span>` : html`<span class="tone-held"><${Icon} name="stopped" /> ${node.state}</span>`}${node.cause && html`<div class="dim small wrap">${node.cause}</div>`}</td>
      <td>${amounts(node.held, node.resources)}</td><td>${(node.trials ?? []).slice(0, 12).map((id, at) => html`${at > 0 ? ", " : ""}<${TrialLink} key=${id} store=${store} facts=${facts} id=${id} />`)}${(node.trials ?? []).length > 12 ? ` and ${node.trials.length - 12} more` : ""}</td>
      <td><${Age} at=${node.joined_at} /></td><td>${node.heard_at ? html`<${Age} at=${node.heard_at} />` : html`<span class="dim">not known</span>`}</td><td>${bytes(node.disk_free_bytes)}</td></tr>`)}</tbody></table></div>
  </section>`;
}

export function Settings({ facts }) {
  const rows = [
    ["Folder", facts.path && html`<span class="mono">${facts.path}</span>`],
    ["Process", facts.holder],
    ["Storage", facts.storage && html`<span class="mono">${facts.storage}</span>${facts.storage_age_s !== null && facts.storage_age_s !== undefined ? ` (published ${duration(facts.storage_age_s)} ago)` : ""}`],
    ["Scheduler", facts.scheduler_line || facts.scheduler || "none: every trial runs to its end"],
    ["Search", facts.search],
    ["At the same time", facts.max_concurrent === null ? "as many trials as the resources allow" : `at most ${count(facts.max_concurrent, "trial")}`],
    ["Run", facts.run && facts.run > 1 && `${facts.run} under this name`],
    ["Used", facts.usage && [`${duration(facts.usage.wall_s)} of processes`, `${duration(facts.usage.cpu_s)} of CPU`, facts.usage.gpu_s > 0 && `${duration(facts.usage.gpu_s)} of GPU`, facts.usage.memory_bytes > 0 && `${bytes(facts.usage.memory_bytes)} of memory at most`].filter(Boolean).join(", ")],
    ["Search space", (facts.space ?? []).length > 0 && html`<table class="plain compact space"><tbody>${facts.space.map(({ name, text }) => html`<tr key=${name}><th scope="row" class="mono">${name}</th><td class="mono"><${Long} text=${text ?? ""} length=${120} /></td></tr>`)}</tbody></table>`],
  ].filter(([, value]) => value);
  return html`<section class="card" id="settings" aria-label="Settings"><h2>Settings</h2><dl class="facts">${rows.map(([name, value]) => html`<dt key=${name}>${name}</dt><dd>${value}</dd>`)}</dl></section>`;
}
