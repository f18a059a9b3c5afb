// One experiment: how it is doing, its best trial, its failures, its charts, the table of its trials, what happened.

import { api } from "../api.js";
import { useSession } from "../session.js";
import { ExperimentActions, WhyNot } from "../steer.js";
import { html, Failed, useEffect, useMemo, useNarrow, useRef, useState, useStore } from "../ui.js";
import { filtered } from "../filter.js";
import { sorted } from "../store.js";
import { ChartTabs } from "./charts_tabs.js";
import { Best, Failures, Notices, Running } from "./now.js";
import { Head } from "./head.js";
import { Happened, Nodes, Settings } from "./history.js";
import { Trials } from "./trials.js";

const MOST_IN_LINK = 200; // ids of selected trials that a link carries

export function ExperimentPage({ key_, view, onView }) {
  const session = useSession(key_);
  if (session.facts === null) {
    return session.error ? html`<${Failed} error=${session.error} retry=${() => session.read()} />` : html`<p class="loading">Reading the experiment…</p>`;
  }
  return html`<${Read} session=${session} view=${view} onView=${onView} />`;
}

/** The selected trials: in the link while they are few. What is no longer there is left out. */
function useSelection(store, view, onView) {
  const [selection, setSelection] = useState(() => idsOf(view.sel));
  const written = useRef(view.sel ?? "");
  useEffect(() => {
    if ((view.sel ?? "") === written.current) return;
    written.current = view.sel ?? "";
    setSelection(idsOf(view.sel));
  }, [view.sel]);
  const known = useMemo(() => new Set([...selection].filter((id) => store.position(id) >= 0)), [selection, store.version]);
  const onSelect = (next) => {
    setSelection(next);
    written.current = next.size <= MOST_IN_LINK ? [...next].map(encodeURIComponent).join(",") : "";
    onView({ sel: written.current });
  };
  return [known.size === selection.size ? selection : known, onSelect];
}

const idsOf = (text) => new Set((text ?? "").split(",").filter(Boolean).map(decodeURIComponent));

function Read({ session, view, onView }) {
  const { store, facts } = session;
  const version = useStore(store);
  const [selection, onSelect] = useSelection(store, view, onView);
  const filter = view.f ?? "";
  const hasEnded = facts.state !== "live";
  // The best first, once no trial changes its place any more.
  const sort = view.sort ?? (!hasEnded || !facts.metric ? "index" : facts.mode === "max" ? "-value" : "value");
  const { positions, error } = useMemo(() => filtered(store, filter), [version, filter]);
  const shown = useMemo(() => sorted(store, positions, sort.replace(/^-/, ""), sort.startsWith("-")).map((at) => store.ids[at]), [positions, sort]);
  const best = useMemo(() => store.leader(facts), [version, facts]);
  const table = useRef();
  const isNarrow = useNarrow();
  const actions = html`<${ExperimentActions} facts=${facts} />`;
  const onFilter = (f) => {
    onView({ f });
    table.current?.scrollIntoView({ block: "start" });
  };
  const shared = { store, facts, selection, onSelect, view, onView };
  const select = (ids) => onSelect(new Set(ids));
  return html`<div class="stack">
    <div><div class="title"><h1>${facts.name}</h1><span class="grow"></span>${!isNarrow && actions}</div><${WhyNot} facts=${facts} /></div>
    ${session.error && html`<${Failed} error=${session.error} retry=${() => session.read()} />`}
    <${Head} store=${store} facts=${facts} />
    <${Notices} facts=${facts} />
    <div class=${hasEnded ? "cards ended" : "cards"}>
      <${Best} store=${store} facts=${facts} best=${best} />
      ${isNarrow && actions}
      <div class="stack side"><${Running} store=${store} facts=${facts} onFilter=${onFilter} />
        <${Failures} store=${store} facts=${facts} onFilter=${onFilter} select=${select} /></div>
      <${Happened} facts=${facts} />
      <${ChartTabs} ...${shared} shown=${shown} api=${api} />
    </div>
    <div ref=${table}><${Trials} ...${shared} shown=${shown} error=${error} filter=${filter} sort=${sort} best=${best} /></div>
    <${Nodes} facts=${facts} store=${store} />
    <${Settings} facts=${facts} />
  </div>`;
}

