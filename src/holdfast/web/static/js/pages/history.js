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

/** `3 of 8 CPU, 1 of 2 GPU`; memory, which few trials ask for, last and only if it is held. */
function amounts(held = {}, all = {}) {
  const first = ["CPU", "GPU"].filter((name) => name in all);
  const others = Object.keys(all).filter((name) => !first.includes(name) && name !== "memory");
  const texts = [...first, ...others].map((name) => `${number(held[name] ?? 0)} of ${number(all[name])} ${name}`);
  return [...texts, ...(held.memory ? [`${bytes(held.memory)} of ${bytes(all.memory ?? 0)} memory`] : [])].join(", ");
}

const NODES_LEFT = 10;

/** The nodes that are there, and then the newest of those that have left since the last restore; a button shows the others. */
export function Nodes({ facts, store }) {
  const [all, showAll] = useState(false);
  const nodes = facts.nodes ?? [];
  if (nodes.length === 0) return null;
  const there = nodes.filter(({ state }) => state !== "left");
  const gone = nodes.filter(({ state }) => state === "left").reverse();
  const newest = gone.filter(({ is_earlier: is }) => !is).slice(0, NODES_LEFT);
  const shown = [...there, ...(all ? gone : newest)];
  const failed = new Map();
  for (const { nodes: on } of facts.failures ?? []) for (const [name, trials] of Object.entries(on ?? {})) failed.set(name, (failed.get(name) ?? 0) + trials);
  return html`<section class="card" id="nodes" aria-label="Nodes"><h2>Nodes <span class="dim">${there.length} here${gone.length > 0 && `, ${gone.length} left`}</span></h2>
    ${there.length === 0 && facts.state === "live" && html`<${Empty}>No node is here. Trials start when one joins.<//>`}
    ${shown.length > 0 && html`<div class="scroll" tabindex="0" role="group" aria-label="Table of nodes"><table class="plain nodes"><thead><tr><th scope="col">Node</th><th scope="col">State</th><th scope="col">In use</th><th scope="col">Trials</th><th scope="col" class="num">Failures</th><th scope="col">Joined</th><th scope="col">Last heard</th><th scope="col">Free disk</th></tr></thead>
    <tbody>${shown.map((node) => html`<${NodeRow} key=${node.name} node=${node} failed=${failed.get(node.name) ?? 0} facts=${facts} store=${store} />`)}</tbody></table></div>`}
    ${gone.length > newest.length && html`<button type="button" class="link" onClick=${() => showAll(!all)}>${all ? "Show fewer" : `Show ${count(gone.length - newest.length, "more node")} that ${gone.length - newest.length === 1 ? "has" : "have"} left`}</button>`}
  </section>`;
}

function NodeRow({ node, failed, facts, store }) {
  const trials = node.trials ?? [];
  const isHere = node.state === "here";
  return html`<tr><th scope="row"><b>${node.name}</b>${node.hostname !== node.name && html` <span class="dim">${node.hostname}</span>`}</th>
    <td class="cause"><span class=${`nowrap tone-${isHere ? "good" : "held"}`}><${Icon} name=${isHere ? "done" : "stopped"} /> ${node.state}${node.left_at && html` <${Age} at=${node.left_at} />`}</span>
      ${node.cause && html`<div class="dim small wrap">${node.cause_short}</div>`}${node.cause && node.cause !== node.cause_short && html`<details class="small"><summary>whole message</summary><div class="wrap">${node.cause}</div></details>`}</td>
    <td>${node.state === "left" ? "" : amounts(node.held, node.resources)}</td>
    <td class="many">${trials.slice(0, 12).map((id, at) => html`${at > 0 ? ", " : ""}<${TrialLink} key=${id} store=${store} facts=${facts} id=${id} />`)}${trials.length > 12 ? ` and ${trials.length - 12} more` : ""}</td>
    <td class="num">${failed || ""}</td><td><${Age} at=${node.joined_at} /></td>
    <td>${node.heard_at ? html`<${Age} at=${node.heard_at} />` : html`<span class="dim">not known</span>`}</td><td>${bytes(node.disk_free_bytes)}</td></tr>`;
}

export function Settings({ facts }) {
  const rows = [
    ["Folder", facts.path && html`<span class="mono">${facts.path}</span>`],
    ["Process", facts.holder],
    ["Storage", facts.storage && html`<span class="mono">${facts.storage}</span>${facts.storage_age_s !== null && facts.storage_age_s !== undefined ? ` (published ${duration(facts.storage_age_s)} ago)` : ""}`],
    ["Scheduler", facts.scheduler_line || facts.scheduler || "none: every trial runs to its end"],
    ["Search", facts.search],
    ["Chosen", facts.choice],
    ["Outlook", facts.outlook],
    ["At the same time", facts.max_concurrent === null ? "as many trials as the resources allow" : `at most ${count(facts.max_concurrent, "trial")}`],
    ["Run", facts.run && facts.run > 1 && `${facts.run} under this name`],
    ["Used", facts.usage && [`${duration(facts.usage.wall_s)} of processes`, `${duration(facts.usage.cpu_s)} of CPU`, facts.usage.gpu_s > 0 && `${duration(facts.usage.gpu_s)} of GPU`, facts.usage.memory_bytes > 0 && `${bytes(facts.usage.memory_bytes)} of memory at most`].filter(Boolean).join(", ")],
    ["Search space", (facts.space ?? []).length > 0 && html`<table class="plain compact space"><tbody>${facts.space.map(({ name, text }) => html`<tr key=${name}><th scope="row" class="mono">${name}</th><td class="mono"><${Long} text=${text ?? ""} length=${120} /></td></tr>`)}</tbody></table>`],
  ].filter(([, value]) => value);
  return html`<section class="card" id="settings" aria-label="Settings"><h2>Settings</h2><dl class="facts">${rows.map(([name, value]) => html`<dt key=${name}>${name}</dt><dd>${value}</dd>`)}</dl></section>`;
}
