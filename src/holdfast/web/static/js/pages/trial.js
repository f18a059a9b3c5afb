// One trial.

import { api } from "../api.js";
import { useSession } from "../session.js";
import { html, Chart, Failed, useLoaded } from "../ui.js";

export function TrialPage({ key_, trial: id, view, onView }) {
  const session = useSession(key_);
  const { value: trial, error, again } = useLoaded(() => api.trial(key_, id), [key_, id]);
  if (trial === null || session.facts === null) {
    const failed = error ?? session.error;
    return failed ? html`<${Failed} error=${failed} retry=${again} />` : html`<p class="loading">Reading the trial…</p>`;
  }
  const props = { store: session.store, facts: session.facts, selection: new Set([id]), onSelect() {}, shown: [id], api, view, onView };
  return html`<div class="stack"><h1>${id}</h1>
    <section class="card"><h2>Curves</h2><${Chart} file="curves" part="Curves" ...${props} /></section>
    <section class="card"><h2>Attempts</h2><${Chart} file="timeline" part="Attempts" trial=${trial} facts=${session.facts} /></section></div>`;
}
