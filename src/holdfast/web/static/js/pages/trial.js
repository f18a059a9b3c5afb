// One trial: why it is as it is, and what it wrote.

import { api } from "../api.js";
import { arranged } from "../artifacts.js";
import { bytes, clock, count, duration, flat, iterations, number, plain, sentence } from "../format.js";
import { LogView } from "../log_view.js";
import { trialHash } from "../links.js";
import { hashOf, compareView } from "../route.js";
import { useSession } from "../session.js";
import { Note, TrialActions, TryAgain, WhyNot } from "../steer.js";
import { attemptEnd, isFinal, stateAt, stateOf } from "../words.js";
import { html, Age, Chart, Empty, Failed, Icon, Long, State, now, useEffect, useLoaded, useMemo, useNarrow, useRef, useState, useStore } from "../ui.js";

export function TrialPage({ key_, trial: id, view, onView }) {
  const session = useSession(key_);
  const isNarrow = useNarrow();
  const { store, facts } = session;
  const { value: read, error, again } = useLoaded(() => api.trial(key_, id), [key_, id]);
  useEffect(() => {
    if (error !== null && facts !== null) again(); // the run was starting
  }, [facts === null]);
  useStore(store);
  useFresh(store, id, read, again);
  const trial = read && newest(store, read);
  if (trial === null || facts === null) {
    const failed = error ?? session.error;
    return failed ? html`<${Failed} error=${failed} retry=${() => { again(); session.read(); }} />` : html`<p class="loading">Reading the trial…</p>`;
  }
  const actions = html`<${Actions} store=${store} facts=${facts} trial=${trial} />`;
  const shared = { store, facts, selection: new Set([id]), onSelect() {}, shown: [id], api, view, onView };
  return html`<div class="stack">
    <${Title} store=${store} facts=${facts} trial=${trial}>${!isNarrow && actions}<//>
    <${WhyNot} facts=${facts} />
    ${error && html`<${Failed} error=${error} retry=${again} />`}
    <${Summary} store=${store} facts=${facts} trial=${trial} again=${again} />
    ${isNarrow && actions}
    <section class="card" id="attempts" aria-label="Attempts"><h2>Attempts <span class="dim">${trial.attempts.length}</span></h2>
      ${trial.attempts.length === 0 ? html`<${Empty}>Not started yet. ${facts.state === "live" ? "The trial starts when there are resources for it." : "It starts if a restore continues the experiment."}<//>` : html`<${Chart} file="timeline" part="Attempts" ...${shared} trial=${trial} /><${Attempts} attempts=${trial.attempts} />`}</section>
    <section class="card" id="curves" aria-label="Curves"><h2>Curves</h2>${trial.iteration > 0 ? html`<${Chart} file="curves" part="Curves" ...${shared} />` : html`<${Empty}>No report yet. The curves begin with the first one.<//>`}</section>
    <div class="halves">
      <${Config} facts=${facts} trial=${trial} />
      <${Metrics} trial=${trial} facts=${facts} />
    </div>
    <${Output} facts=${facts} trial=${trial} view=${view} onView=${onView} />
    <${Checkpoints} facts=${facts} trial=${trial} />
    <${Artifacts} facts=${facts} trial=${trial} />
  </div>`;
}

const NEWEST = ["status", "stop_reason", "value", "iteration", "attempt", "reported_at"];

/** The trial with the values that every other part of the page has: the store is newer than the last answer. */
function newest(store, trial) {
  const at = store.position(trial.trial_id);
  return at < 0 ? trial : { ...trial, ...Object.fromEntries(NEWEST.map((name) => [name, store.columns[name][at]])) };
}

/** Reads the trial again when the stream says that it has changed since it was `read`, at most every two seconds. */
function useFresh(store, id, read, again) {
  const timer = useRef(0);
  const of = (key) => store.value(id, key);
  const mark = ["status", "iteration", "attempt", "failures", "note", "checkpoint", "reported_at", "is_held", "pausing", "stop_reason"].map(of).join(" ");
  const seen = useRef(null);
  useEffect(() => {
    if (store.position(id) < 0) return;
    const isOld = read !== null && ["status", "iteration", "attempt"].some((name) => of(name) !== read[name]);
    if (((seen.current !== null && seen.current !== mark) || isOld) && timer.current === 0) {
      timer.current = setTimeout(() => {
        timer.current = 0;
        again();
      }, 2000);
    }
    seen.current = mark;
  }, [mark, read]);
  useEffect(() => () => clearTimeout(timer.current), []);
}

const Actions = ({ store, facts, trial }) => html`<div class="actions"><${TrialActions} facts=${facts} store=${store} ids=${[trial.trial_id]} /><${TryAgain} facts=${facts} config=${trial.config} /></div>`;

function Title({ store, facts, trial, children }) {
  const id = trial.trial_id;
  const at = store.position(id);
  const neighbour = (step) => (at >= 0 ? store.ids[at + step] : undefined);
  const link = (to, label) => (to === undefined ? null : html`<a href=${trialHash(facts, to)}>${label}</a>`);
  return html`<div class="title"><h1>Trial ${trial.index} <span class="mono dim">${id}</span></h1>
    <span class="row small">${link(neighbour(-1), "← previous")} ${link(neighbour(1), "next →")}</span>
    ${children}</div>`;
}

function Summary({ store, facts, trial, again }) {
  const { best_id: best, trial_id: id } = trial;
  const at = store.position(id);
  const status = at < 0 ? stateOf(trial.status, trial.stop_reason) : stateAt(store, at);
  const rank = store.rank(id, facts.mode);
  const isBest = best === id;
  return html`<section class="card" aria-label="Summary"><div class="tiles">
      <div class="tile"><div class="label">State</div><div class="figure"><${State} of=${status} /></div>${trial.is_added && html`<div class="dim small">added by a person</div>`}${trial.confirms && html`<div class="dim small">a fresh run that confirms <a href=${trialHash(facts, trial.confirms)}>${trial.confirms}</a></div>`}</div>
      ${facts.metric && html`<div class="tile"><div class="label">${facts.metric} (${facts.mode})</div><div class="figure">${trial.value === null ? "none yet" : plain(trial.value)} ${isBest && html`<span class="star"><${Icon} name="star" /></span>`}</div><div class="dim small">${isBest ? "the best" : rank === null ? "" : `${ordinal(rank)} of ${store.columns.value.filter((value) => typeof value === "number").length}`}</div></div>`}
      <div class="tile"><div class="label">Iteration</div><div class="figure">${trial.iteration.toLocaleString("en")}</div><div class="dim small">${trial.reported_at ? html`last report <${Age} at=${trial.reported_at} />` : "no report yet"}</div></div>
      <div class="tile"><div class="label">Trained for</div><div class="figure">${duration(trial.time_total_s)}</div>${trial.usage && html`<div class="dim small">${duration(trial.usage.cpu_s)} of CPU${trial.usage.memory_bytes > 0 ? `, ${bytes(trial.usage.memory_bytes)}` : ""}</div>`}</div>
      ${trial.failures > 0 && html`<div class="tile"><div class="label">Failures</div><div class="figure tone-bad">${trial.failures}</div><div class="dim small">see the attempts</div></div>`}
      ${trial.node && html`<${NodeTile} facts=${facts} trial=${trial} />`}
    </div>
    ${trial.unread_text && html`<div class="notice"><${Icon} name="warning" />${trial.unread_text}.</div>`}
    ${trial.paused && html`<p class="wrap why"><${Paused} trial=${trial} /></p>`}
    ${trial.why && html`<p class="wrap why"><${Long} text=${sentence(trial.why)} /></p>`}
    ${trial.error && html`<div class="failed"><${Icon} name="failed" /><b><${Long} text=${trial.error.headline ?? ""} /></b>${trial.error.where && html`<span class="dim">at ${trial.error.where}</span>`}${trial.error.final === false && html`<span class="dim">A retry is due.</span>`}</div>`}
    <h2 class="space">Note</h2><${Note} facts=${facts} trial=${id} text=${trial.note} onSaved=${again} />
  </section>`;
}

/** Who has paused the trial, when, and whether it still runs. */
const Paused = ({ trial: { paused, pausing } }) => html`${paused.by || "A person"} ${pausing ? "ordered a pause" : "paused it"} at ${clock(paused.at, now())} (<${Age} at=${paused.at} />).${pausing ? " It pauses at its next report with a checkpoint." : " It continues when a person resumes it."}`;

/** Where it runs, or ran last, and what has become of the node. */
function NodeTile({ facts, trial }) {
  const nodes = [...new Set(trial.nodes)];
  const runs = ["RUNNING", "STARTING", "STOPPING"].includes(trial.status);
  const gone = (facts.nodes ?? []).filter(({ name, state }) => nodes.includes(name) && state !== "here");
  const said = facts.state !== "live" || isFinal(trial.status) ? "" : gone.map(({ name, state }) => `${nodes.length > 1 ? `${name} ` : ""}${state === "left" ? "has left" : "is leaving"}`).join(", ");
  return html`<div class="tile"><div class="label">${runs ? "" : "Last "}${runs ? "Node" : "node"}${nodes.length > 1 ? "s" : ""}</div><div class="figure">${nodes.join(", ")}</div><div class="dim small">${said}</div></div>`;
}

const ordinal = (n) => `${n.toLocaleString("en")}${n % 100 >= 11 && n % 100 <= 13 ? "th" : { 1: "st", 2: "nd", 3: "rd" }[n % 10] ?? "th"} best`;

function Attempts({ attempts }) {
  return html`<ol class="list attempts">${attempts.map((one) => html`<${Attempt} key=${one.attempt} one=${one} />`)}</ol>`;
}

function Attempt({ one }) {
  const ended = one.ended_at ?? now();
  const nodes = one.nodes ?? [];
  const place = [nodes.length > 0 && `${nodes.length > 1 ? "nodes" : "node"} ${nodes.join(", ")}`, one.hostname !== one.node && one.hostname, one.pid && `process ${one.pid}`].filter(Boolean).join(", ");
  return html`<li><div class="row"><b>Attempt ${one.attempt}</b><${State} of=${attemptEnd(one.end)} />
      <span>${one.to_iteration === null || one.to_iteration === undefined ? "" : iterations(one.from_iteration ?? 0, one.to_iteration)}${one.from_iteration > 0 ? `, from the checkpoint of iteration ${one.from_iteration}` : ""}</span>
      <span class="dim">${one.began_at ? `${clock(one.began_at, now())}, ${duration(ended - one.began_at)}` : ""}${place && ` · ${place}`}</span></div>
    ${(one.error?.headline || one.why) && html`<div class=${`wrap ${one.end === "failed" || one.end === "lost" ? "tone-bad" : "dim"}`}><${Long} text=${one.error?.headline ?? sentence(one.why)} />${one.error?.where && html`<span class="dim"> at ${one.error.where}</span>`}</div>`}
    ${one.error?.headline && one.why && !one.why.includes(one.error.headline) && html`<div class="dim wrap"><${Long} text=${sentence(one.why)} /></div>`}
    ${one.error?.traceback && html`<details><summary>Traceback</summary><${Long} text=${one.error.traceback} length=${20000} block /></details>`}
    ${one.usage && html`<div class="dim small">${duration(one.usage.cpu_s)} of CPU in ${duration(one.usage.wall_s)}${one.usage.memory_bytes > 0 ? `, ${bytes(one.usage.memory_bytes)} of memory at most` : ""}</div>`}</li>`;
}

function Config({ facts, trial }) {
  const config = useMemo(() => flat(trial.config), [trial]);
  const differs = new Map((trial.differs ?? []).map((one) => [one.name, one]));
  const varied = new Set(facts.varied ?? []);
  const names = Object.keys(config).sort((a, b) => differs.has(b) - differs.has(a) || varied.has(b) - varied.has(a));
  const other = trial.best_id && trial.best_id !== trial.trial_id ? trial.best_id : null;
  return html`<section class="card" id="config" aria-label="Config"><header><h2>Config</h2>
    ${other && html`<span class="dim small">${differs.size === 0 ? "the same as the best trial's" : `${count(differs.size, "difference")} from the best,`} <a href=${trialHash(facts, other)}>${other}</a> (<a href=${hashOf({ page: "compare", view: compareView([trial.trial_id, other].map((one) => ({ key: facts.key, trial: one }))) })}>compare</a>)</span>`}</header>
    ${names.length === 0 ? html`<${Empty}>The config is empty: param_space has no parameters.<//>` : html`<table class="plain fixed"><thead><tr><th scope="col">Parameter</th><th scope="col">Here</th>${other && html`<th scope="col">Best trial</th>`}</tr></thead>
    <tbody>${names.map((name) => html`<tr key=${name} class=${differs.has(name) ? "differs" : ""}><th scope="row" class="mono">${differs.has(name) && html`<b class="tone-accent" title="Differs from the best trial"><span aria-hidden="true">≠</span><span class="hidden">differs: </span></b> `}${name}</th><td class="mono"><${Value} value=${config[name]} /></td>
      ${other && html`<td class="mono">${differs.has(name) ? html`<${Value} value=${differs.get(name).best} />` : html`<span class="dim">same</span>`}</td>`}</tr>`)}</tbody></table>`}
  </section>`;
}

const Value = ({ value }) => (typeof value === "number" ? html`<span title=${String(value)}>${number(value)}</span>` : html`<${Long} text=${plain(value)} length=${200} />`);

function Metrics({ trial, facts }) {
  const metrics = flat(trial.metrics ?? {});
  const goals = new Set([facts.metric, ...Object.keys(facts.goals ?? {})]);
  const names = Object.keys(metrics).sort((a, b) => goals.has(b) - goals.has(a));
  return html`<section class="card" id="metrics" aria-label="Last metrics"><h2>Last metrics</h2>
    ${names.length === 0 ? html`<${Empty}>No report yet.<//>` : html`<table class="plain fixed"><tbody>${names.map((name) => html`<tr key=${name}><th scope="row" class="mono">${name}</th><td class="mono num">${goals.has(name) ? html`<b><${Value} value=${metrics[name]} /></b>` : html`<${Value} value=${metrics[name]} />`}</td></tr>`)}</tbody></table>`}
  </section>`;
}

function Output({ facts, trial, view, onView }) {
  const logs = trial.logs ?? [];
  return html`<section class="card" id="output" aria-label="Output"><h2>Output</h2>
    ${trial.output_from && html`<p class="dim small">Node ${trial.output_from} sends the output to storage with each publication: the newest lines come later.</p>`}
    ${logs.length === 0 ? html`<${Empty}>This trial has no output file yet. It appears when the trial starts, unless the run has <code>log_to_file=False</code>.<//>`
      : html`<${LogView} facts=${facts} trial=${trial.trial_id} logs=${logs} follows=${!isFinal(trial.status) && facts.state === "live"} chosen=${view.log} onChoose=${(log) => onView({ log })} />`}
  </section>`;
}

const CHECKPOINTS_SHOWN = 8;

function Checkpoints({ facts, trial }) {
  const all = trial.checkpoints ?? [];
  const [shows, showAll] = useState(false);
  return html`<section class="card" id="checkpoints" aria-label="Checkpoints"><h2>Checkpoints${all.length > 0 && html` <span class="dim">${all.length}</span>`}</h2>
    ${all.length === 0 ? html`<${Empty}>No checkpoint. A trial saves one with <code>tune.report(..., checkpoint=...)</code>; retries and restores continue from it.<//>`
      : html`<div class="scroll" tabindex="0" role="group" aria-label="Table of checkpoints"><table class="plain"><thead><tr><th scope="col">Iteration</th><th scope="col" class=${trial.checkpoint_metric ? "mono" : ""}>${trial.checkpoint_metric ?? "Score"}</th><th scope="col">Why it is kept</th><th scope="col">Where</th><th scope="col">Size</th><th scope="col"><span class="hidden">Download</span></th></tr></thead>
      <tbody>${all.slice(0, shows ? all.length : CHECKPOINTS_SHOWN).map((one) => html`<tr key=${one.dirname}><th scope="row">${one.iteration} <span class="dim small mono nowrap">${one.dirname}</span></th><td class="nowrap">${one.score === null ? html`<span class="dim">${trial.checkpoint_metric ? "not known" : "no metric"}</span>` : html`<${Value} value=${one.score} />`}${one.is_best && html` <span class="star" title="The best of these checkpoints"><${Icon} name="star" /><span class="hidden">the best</span></span>`}</td><td>${one.is_newest && !one.why_kept.includes("the newest") ? "the newest; " : ""}${one.why_kept}${!one.committed && html` <span class="tone-held">not complete yet</span>`}</td>
        <td>${[one.here && "this machine", one.node && `node ${one.node}`, one.stored && "storage"].filter(Boolean).join(", ") || html`<span class="dim">missing</span>`}${facts.storage && !one.stored && html`<div class="dim small">not in storage</div>`}</td>
        <td class="nowrap">${bytes(one.size_bytes)}${one.files !== null && one.files !== undefined && html` <span class="dim small">${count(one.files, "file")}</span>`}</td>
        <td>${one.here || one.is_readable ? html`<a class="nowrap" href=${api.checkpointUrl(facts.key, trial.trial_id, one.dirname)} download aria-label=${`Download ${one.dirname} as .tar`}>Download .tar</a>` : html`<span class="dim small">${one.stored ? "to download it, open the page with the storage's URI" : one.node ? "to download once it is in storage" : ""}</span>`}</td></tr>`)}</tbody></table></div>
      ${all.length > CHECKPOINTS_SHOWN && html`<button type="button" class="link" onClick=${() => showAll(!shows)}>${shows ? `Show the first ${CHECKPOINTS_SHOWN}` : `Show all ${all.length}`}</button>`}`}
  </section>`;
}

function Artifacts({ facts, trial }) {
  const all = trial.artifacts ?? [];
  const [shows, showAll] = useState(false);
  const url = (path) => api.fileUrl(facts.key, trial.trial_id, path);
  const { images, files } = arranged(all, shows);
  const { hasMore } = arranged(all, false);
  return html`<section class="card" id="artifacts" aria-label="Artifacts"><h2>Artifacts${all.length > 0 && html` <span class="dim">${(all.length + (trial.artifacts_more ?? 0)).toLocaleString("en")}</span>`}</h2>
    ${all.length === 0 ? html`<${Empty}>No files. What a trial writes into its working directory appears here; images are shown.<//>` : html`
    ${images.length > 0 && html`<ul class="images">${images.map(({ path, size_bytes }) => html`<li key=${path}><a href=${url(path)}><img src=${url(path)} alt=${path} loading="lazy" /></a><div class="small wrap">${path} <span class="dim">${bytes(size_bytes)}</span></div></li>`)}</ul>`}
    ${files.length > 0 && html`<ul class="list files">${files.map(({ path, size_bytes }) => html`<li key=${path} class="row"><a class="wrap mono" href=${url(path)} download>${path}</a><span class="dim small">${bytes(size_bytes)}</span></li>`)}</ul>`}
    ${hasMore && html`<button type="button" class="link" onClick=${() => showAll(!shows)}>${shows ? "Show fewer" : `Show all ${all.length}`}</button>`}
    ${trial.artifacts_more > 0 && html`<p class="dim">${count(trial.artifacts_more, "more file")} in the trial's folder, ${trial.folder}.</p>`}`}
  </section>`;
}
