// One experiment.

import { api } from "../api.js";
import { useSession } from "../session.js";
import { html, Failed, useState, useStore } from "../ui.js";
import { ChartTabs } from "./charts_tabs.js";

export function ExperimentPage({ key_, view, onView }) {
  const session = useSession(key_);
  if (session.facts === null) {
    return session.error ? html`<${Failed} error=${session.error} retry=${() => session.read()} />` : html`<p class="loading">Reading the experiment…</p>`;
  }
  return html`<${Read} session=${session} view=${view} onView=${onView} />`;
}

function Read({ session, view, onView }) {
  const { store, facts } = session;
  useStore(store);
  const [selection, onSelect] = useState(() => new Set((view.sel ?? "").split(",").filter(Boolean)));
  return html`<div class="stack"><h1>${facts.name}</h1>
    <${ChartTabs} store=${store} facts=${facts} selection=${selection} onSelect=${onSelect} shown=${store.ids} api=${api} view=${view} onView=${onView} /></div>`;
}
