// What a person can order: buttons, and dialogs that say what will happen.

import { api } from "./api.js";
import { choicesOf, configOf, jsonOf, textsOf } from "./config_form.js";
import { count, plain, shortened } from "./format.js";
import { costOfPause } from "./pausing.js";
import { say } from "./toast.js";
import { isFinal } from "./words.js";
import { html, Dialog, Failed, Icon, useLayoutEffect, useRef, useState } from "./ui.js";

/** Sends an order; the reply's sentence is shown. Answers whether the run did it. */
async function send(key, order) {
  try {
    say((await api.order(key, order)).text);
    return true;
  } catch (error) {
    say(error.message, true);
    return false;
  }
}

/** A dialog with one button that sends. It stays open, with the error, if the run refuses. */
function Ordering({ title, children, label, isDangerous, order, facts, onClose }) {
  const [state, setState] = useState({ isSent: false, error: null });
  const submit = async (event) => {
    event.preventDefault();
    let wanted;
    try {
      wanted = order();
    } catch (error) {
      return setState({ isSent: false, error });
    }
    setState({ isSent: true, error: null });
    try {
      say((await api.order(facts.key, wanted)).text);
      onClose(true);
    } catch (error) {
      setState({ isSent: false, error });
    }
  };
  return html`<${Dialog} title=${title} onClose=${() => onClose(false)}><form onSubmit=${submit} novalidate class="stack">
    ${children}
    ${state.error && html`<${Failed} error=${state.error} />`}
    <div class="actions"><button type="button" onClick=${() => onClose(false)}>Cancel</button>
      <button type="submit" class=${`primary ${isDangerous ? "danger" : ""}`} disabled=${state.isSent}>${state.isSent ? "Sending…" : label}</button></div>
  </form><//>`;
}

const names = (ids) => (ids.length === 1 ? `trial ${ids[0]}` : count(ids.length, "trial"));

function StopTrials({ ids, facts, onClose }) {
  return html`<${Ordering} title=${`Stop ${names(ids)}?`} label=${ids.length === 1 ? "Stop the trial" : `Stop ${count(ids.length, "trial")}`} isDangerous facts=${facts} onClose=${onClose} order=${() => ({ order: "stop", trials: ids })}>
    <p>${ids.length === 1 ? "The trial ends" : "The trials end"} now. What ${ids.length === 1 ? "it has" : "they have"} reported counts, and checkpoints stay. <b>This cannot be undone.</b> To continue later, pause instead.</p>
  <//>`;
}

/** A pause later loses no work; one now may. Trials that pause at their next report already can only be paused now. */
function PauseTrials({ ids, facts, store, onClose }) {
  const pausing = ids.filter((id) => store.value(id, "pausing"));
  const [isNow, setNow] = useState(pausing.length === ids.length);
  const { running, text } = costOfPause(store, ids);
  const one = ids.length === 1;
  const [what, until] = [one ? "The trial" : "The trials", one ? "until a person resumes it" : "until a person resumes them"];
  const order = () => ({ order: "pause", trials: isNow ? ids : ids.filter((id) => !pausing.includes(id)), now: isNow });
  return html`<${Ordering} title=${`Pause ${names(ids)}?`} label=${one ? "Pause the trial" : `Pause ${count(ids.length, "trial")}`} facts=${facts} onClose=${onClose} order=${order}>
    <p>${running.length > 0 ? `${what} ${one ? "gives its" : "give their"} resources to others ${until}.` : `${what} ${one ? "does" : "do"} not start ${until}.`}</p>
    ${running.length > 0 && html`<fieldset class="options"><legend class="hidden">When</legend>
      <label class="option"><input type="radio" name="when" checked=${!isNow} disabled=${pausing.length === ids.length} onChange=${() => setNow(false)} /><span><b>At the next report with a checkpoint</b><br /><span class="dim">${pausing.length === ids.length ? "Ordered already." : "No work is lost."}</span></span></label>
      <label class="option"><input type="radio" name="when" checked=${isNow} onChange=${() => setNow(true)} /><span><b>Now</b><br /><span class="dim">${text}</span></span></label></fieldset>`}
  <//>`;
}

function StopExperiment({ facts, onClose }) {
  const running = (facts.counts.RUNNING ?? 0) + (facts.counts.STARTING ?? 0);
  return html`<${Ordering} title="Stop the experiment?" label="Stop the experiment" isDangerous facts=${facts} onClose=${onClose} order=${() => ({ order: "stop_experiment" })}>
    <p>The run ends as after Ctrl-C: ${running === 0 ? "no trial runs now" : `${count(running, "running trial")} ${running === 1 ? "stops" : "stop"}`}, everything is written, and <code>fit()</code> raises KeyboardInterrupt in the script.</p>
    <p>A restore continues it: <code class="wrap">holdfast resume ${facts.path}</code></p>
  <//>`;
}

function Limit({ facts, onClose }) {
  const [text, setText] = useState(String(facts.max_concurrent ?? ""));
  const order = () => {
    if (text.trim() === "") return { order: "limit", max_concurrent: null };
    if (!/^\d+$/.test(text.trim()) || Number(text) < 1) throw new Error(`The limit must be a whole number from 1, or empty. It is “${shortened(text, 20).text}”.`);
    return { order: "limit", max_concurrent: Number(text) };
  };
  return html`<${Ordering} title="Trials at the same time" label="Change the limit" facts=${facts} onClose=${onClose} order=${order}>
    <label class="field">At most this many trials run at once (empty: no limit)<input type="text" inputmode="numeric" value=${text} onInput=${(event) => setText(event.target.value)} /></label>
    <p class="dim">Now: ${facts.max_concurrent ?? "no limit"}. Running trials continue; a lower limit delays the next ones.</p>
  <//>`;
}

function AddTrials({ facts, onClose }) {
  const [text, setText] = useState("5");
  const order = () => {
    if (!/^\d+$/.test(text.trim()) || Number(text) < 1) throw new Error(`The number of trials must be a whole number from 1. It is “${shortened(text, 20).text}”.`);
    return { order: "add_trials", count: Number(text) };
  };
  return html`<${Ordering} title="Add trials" label="Add them" facts=${facts} onClose=${onClose} order=${order}>
    <label class="field">Samples to add<input type="text" inputmode="numeric" value=${text} onInput=${(event) => setText(event.target.value)} /></label>
    <p class="dim">num_samples grows by this number${facts.num_samples ? ` (now ${facts.num_samples})` : ""}. With a grid, each sample is every point of the grid.</p>
  <//>`;
}

/** `config`: what the form begins with, for "try again with this config". */
function AddConfig({ facts, config = null, onClose }) {
  const space = facts.space ?? [];
  const [texts, setTexts] = useState(() => textsOf(space, config));
  const [json, setJson] = useState(() => (space.length === 0 ? JSON.stringify(config ?? {}, null, 2) : null));
  const order = () => ({ order: "add_config", config: json === null ? configOf(space, texts) : jsonOf(json) });
  const toJson = () => {
    try {
      setJson(JSON.stringify(configOf(space, texts), null, 2));
    } catch {
      setJson("{}");
    }
  };
  const toForm = () => {
    try {
      setTexts(textsOf(space, jsonOf(json)));
    } catch {
      // what is no configuration yet leaves the form as it was
    }
    setJson(null);
  };
  return html`<${Ordering} title="Add a trial with this config" label="Add the trial" facts=${facts} onClose=${onClose} order=${order}>
    <p class="dim">The trial starts next, in addition to num_samples. Fields that you leave empty are drawn from the search space.</p>
    ${json === null
      ? html`<div class="form">${space.map((parameter) => html`<${Parameter} key=${parameter.name} parameter=${parameter} text=${texts[parameter.name]} onText=${(text) => setTexts({ ...texts, [parameter.name]: text })} />`)}</div>`
      : html`<label class="field">Config as JSON<textarea class="mono" rows="10" spellcheck=${false} value=${json} onInput=${(event) => setJson(event.target.value)}></textarea></label>`}
    ${space.length > 0 && html`<div><button type="button" class="link" onClick=${json === null ? toJson : toForm}>${json === null ? "Write it as JSON" : "Use the form"}</button></div>`}
  <//>`;
}

function Parameter({ parameter, text, onText }) {
  const { name, text: drawn } = parameter;
  const choices = choicesOf(parameter);
  const input = choices !== null
    ? html`<select value=${text} onChange=${(event) => onText(event.target.value)}><option value="">drawn</option>${choices.map((choice) => html`<option key=${JSON.stringify(choice)} value=${JSON.stringify(choice)}>${shortened(plain(choice), 60).text}</option>`)}</select>`
    : html`<input type="text" class="mono" placeholder="drawn" value=${text} onInput=${(event) => onText(event.target.value)} />`;
  return html`<label class="field"><span><b>${name}</b> <span class="dim small">${shortened(drawn ?? "", 80).text}</span></span>${input}</label>`;
}

const DIALOGS = { stop: StopTrials, stop_experiment: StopExperiment, limit: Limit, add_trials: AddTrials, add_config: AddConfig };

/** Whether a person may steer; else the reason stands where the buttons would. */
export const canSteer = (facts) => facts.steering?.possible === true;

export const WhyNot = ({ facts }) =>
  !canSteer(facts) && facts.state === "live" && html`<p class="dim small" id="why-not-steer">You cannot steer this run from here: ${facts.steering?.why_not || "the server does not say why"}.</p>`;

export function ExperimentActions({ facts }) {
  const [open, setOpen] = useState(null);
  if (!canSteer(facts)) return null;
  if (facts.ending) return html`<span class="dim">The run is ending.</span>`; // and refuses orders
  const Open = DIALOGS[open];
  return html`<div class="actions" role="group" aria-label="Steer the experiment">
    <button type="button" onClick=${() => setOpen("add_config")}>Add config</button>
    <button type="button" onClick=${() => setOpen("add_trials")}>Add trials</button>
    <button type="button" onClick=${() => setOpen("limit")}>Limit</button>
    <button type="button" class="danger" onClick=${() => setOpen("stop_experiment")}><${Icon} name="stopped" />Stop experiment</button>
    ${open !== null && html`<${Open} facts=${facts} onClose=${() => setOpen(null)} />`}
  </div>`;
}

/** Buttons for one trial, or for the selected ones; each acts on those that it fits. */
export function TrialActions({ facts, store, ids, small = false }) {
  const [asked, ask] = useState(null);
  const [isSent, sends] = useState(false);
  if (!canSteer(facts) || ids.length === 0) return null;
  const of = (id, key) => store.value(id, key);
  const open = ids.filter((id) => !isFinal(of(id, "status")));
  if (open.length === 0 && asked === null) return null;
  const held = open.filter((id) => of(id, "is_held") || of(id, "pausing"));
  const pausable = open.filter((id) => !of(id, "is_held") || of(id, "pausing"));
  const order = async (wanted) => {
    sends(true);
    await send(facts.key, wanted);
    sends(false);
  };
  const label = (word, fit) => (ids.length > 1 && fit.length > 0 ? `${word} ${fit.length}` : word);
  const size = small ? "small" : "";
  return html`<span class="row" role="group" aria-label=${ids.length === 1 ? "Steer the trial" : "Steer the selected trials"}>
    <button type="button" class=${size} disabled=${isSent || pausable.length === 0} title=${pausable.length === 0 ? "No trial here runs or waits" : "Give the resources to other trials, until a person resumes it"} onClick=${() => ask({ Asking: PauseTrials, of: pausable })}><${Icon} name="paused" />${label("Pause", pausable)}</button>
    <button type="button" class=${size} disabled=${isSent || held.length === 0} title=${held.length === 0 ? "No trial here is held by a person" : "Continue from the newest checkpoint"} onClick=${() => order({ order: "resume", trials: held })}><${Icon} name="running" />${label("Resume", held)}</button>
    <button type="button" class=${`danger ${size}`} disabled=${isSent || open.length === 0} onClick=${() => ask({ Asking: StopTrials, of: open })}><${Icon} name="stopped" />${label("Stop", open)}</button>
    ${asked !== null && html`<${asked.Asking} ids=${asked.of} facts=${facts} store=${store} onClose=${() => ask(null)} />`}
  </span>`;
}

export function TryAgain({ facts, config }) {
  const [isOpen, opens] = useState(false);
  if (!canSteer(facts)) return null;
  return html`<button type="button" onClick=${() => opens(true)}>Try again with this config</button>${isOpen && html`<${AddConfig} facts=${facts} config=${config} onClose=${() => opens(false)} />`}`;
}

const LONGEST_NOTE = 10_000;

export function Note({ facts, trial, text, onSaved }) {
  const [typed, setTyped] = useState(null);
  const [isSent, sends] = useState(false);
  const area = useRef();
  useLayoutEffect(() => {
    if (typed !== null) area.current?.focus();
  }, [typed === null]);
  const save = async (event) => {
    event.preventDefault();
    sends(true);
    const isSaved = await send(facts.key, { order: "note", trial, text: typed });
    sends(false);
    if (!isSaved) return;
    setTyped(null);
    onSaved();
  };
  if (typed === null) {
    return html`<div class="row">${text ? html`<p class="long note">${text}</p>` : html`<p class="empty">No note.${canSteer(facts) ? "" : " You can write one while the experiment runs on this machine."}</p>`}
      ${canSteer(facts) && html`<button type="button" class="small" onClick=${() => setTyped(text ?? "")}>${text ? "Change the note" : "Write a note"}</button>`}</div>`;
  }
  return html`<form onSubmit=${save} class="stack"><label class="field">Note on trial ${trial}<textarea ref=${area} rows="4" maxlength=${LONGEST_NOTE} value=${typed} onInput=${(event) => setTyped(event.target.value)}></textarea></label>
    <div class="row"><button type="submit" class="primary" disabled=${isSent}>Save the note</button><button type="button" onClick=${() => setTyped(null)}>Cancel</button><span class="dim small">${typed.length.toLocaleString("en")} of ${LONGEST_NOTE.toLocaleString("en")} characters</span></div></form>`;
}
