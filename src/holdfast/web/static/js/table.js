// The table of trials: only the rows that are in sight are drawn, so that ten thousand stay smooth.

import { clock, duration, number, plain, shortened } from "./format.js";
import { TrialId } from "./links.js";
import { hashOf } from "./route.js";
import { COLUMNS } from "./store.js";
import { stateAt } from "./words.js";
import { html, Age, Component, Icon, State, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./ui.js";

const ROW = 33;
const MARGIN_ROWS = 8;
const STEP = 4 * ROW; // the rows are drawn anew when one has scrolled so far
const CHECK_WIDTH = 40;
const tops = new Map();
const NARROW = 600;
const NARROWED = { id: 118, status: 118 }; // a phone shows the number, the state and the value

const TITLES = {
  id: "Trial", index: "#", name: "Name", status: "State", stop_reason: "Stop reason", why: "Why it ended", iteration: "Iteration",
  attempt: "Attempt", failures: "Failures", time_total_s: "Time trained", began_at: "Started", reported_at: "Last report", node: "Node", note: "Note",
  checkpoint: "Checkpoint", error: "Error", is_added: "Added by a person", confirms: "Confirms", is_held: "Held by a person", pausing: "Pause requested", checkpoint_iteration: "Checkpoint at iteration",
};

/** The name of a column for a reader. */
export function titleOf(key, facts) {
  if (key === "value") return facts.metric ?? "Value";
  return TITLES[key] ?? key.replace(/^(config|metrics)\//, "");
}

/** The columns that a table has unless the user chose others. */
export function usualColumns(store, facts) {
  const known = (key) => store.column(key) !== undefined;
  const has = (key) => (store.column(key) ?? []).some((value) => value !== null && value !== 0 && value !== "" && value !== false);
  const goals = Object.keys(facts.goals ?? {});
  const metrics = [...new Set([...goals, ...(facts.metrics ?? [])])].filter((name) => name !== facts.metric).slice(0, Math.max(3, goals.length));
  return [
    "id", "status", ...(facts.metric ? ["value"] : []), "iteration",
    ...(facts.varied ?? []).slice(0, 6).map((name) => `config/${name}`).filter(known),
    ...metrics.map((name) => `metrics/${name}`).filter(known),
    "time_total_s", "reported_at",
    ...["confirms", "failures", "error", "note", "node"].filter(has),
  ];
}

/** Of the usual columns those that fit: the last metrics and parameters are left out first, and the user can choose them. */
export function fitting(columns, store, facts, width) {
  if (width < NARROW) return columns; // which scrolls
  const goals = new Set(Object.keys(facts.goals ?? {}).map((name) => `metrics/${name}`));
  const metrics = columns.filter((key) => key.startsWith("metrics/") && !goals.has(key));
  const leaves = [...metrics.reverse(), "time_total_s", "failures", ...columns.filter((key) => key.startsWith("config/")).reverse()];
  const shown = new Set(columns);
  let total = layoutOf(columns, store, facts, false).total;
  for (const key of leaves) {
    if (total <= width || !shown.delete(key)) continue;
    total -= Math.round(widthOf(key, store, facts));
  }
  return columns.filter((key) => shown.has(key));
}

const kindOf = (key) => (key === "id" ? "id" : key === "status" ? "status" : COLUMNS[key] ?? "any");

function widthOf(key, store, facts) {
  const title = titleOf(key, facts).length * 7.6 + 36;
  const kind = kindOf(key);
  if (kind === "id") return Math.min(320, 100 + 8.3 * Math.max(8, ...store.ids.slice(0, 20).map((id) => id.length)));
  if (kind === "status") return 130;
  if (kind === "text") return key === "error" || key === "why" ? 220 : 160;
  if (kind !== "any") return Math.max(88, Math.min(180, title));
  const values = store.column(key) ?? [];
  const sample = values.slice(0, 60).map((value) => Math.min(24, plain(value).length) * 7.8 + 24);
  return Math.max(84, Math.min(220, title), ...sample);
}

const isRight = (key, store) => ["number", "seconds"].includes(kindOf(key)) || (kindOf(key) === "any" && typeof (store.column(key) ?? []).find((value) => value !== null) === "number");

/** The grid's columns for CSS, their width altogether, and which hold numbers. */
function layoutOf(columns, store, facts, isNarrow) {
  const widths = columns.map((key) => Math.round(isNarrow && key in NARROWED ? NARROWED[key] : widthOf(key, store, facts)));
  return {
    template: `${CHECK_WIDTH}px ${widths.map((width) => `minmax(${width}px, ${width}fr)`).join(" ")}`,
    total: widths.reduce((sum, width) => sum + width, CHECK_WIDTH),
    rightAligned: new Set(columns.filter((key) => isRight(key, store))),
  };
}

/** While the pointer is over the rows, they keep their places: what one is about to click does not move away. */
function useSteady(ids, query) {
  const held = useRef(null);
  const shown = useRef(ids);
  if (held.current !== null && held.current.query === query) {
    const wanted = new Set(ids);
    const kept = held.current.ids.filter((id) => wanted.delete(id));
    shown.current = wanted.size === 0 ? kept : [...kept, ...wanted];
  } else {
    held.current = null;
    shown.current = ids;
  }
  const hold = () => {
    held.current ??= { ids: shown.current, query };
  };
  const release = () => {
    held.current = null;
  };
  return [shown.current, hold, release];
}

function useHovered(store) {
  const [hovered, setHovered] = useState(store.hovered);
  useEffect(() => store.subscribe(() => setHovered(store.hovered)), [store]);
  return hovered;
}

/** `ids` are the trials to show in their order; `sort` is a column, with "-" before it for the largest first. */
export function TrialTable({ store, facts, ids, columns, sort, onSort, selection, onSelect, best, query, onWidth }) {
  const [rows, hold, release] = useSteady(ids, query);
  const [view, setView] = useState({ top: 0, height: 480, width: 1000 });
  const [active, setActive] = useState(null);
  const anchor = useRef(null);
  const box = useRef();
  const hovered = useHovered(store);
  const activeAt = useMemo(() => (active === null ? -1 : rows.indexOf(active)), [rows, active]);

  useLayoutEffect(() => {
    box.current.scrollTop = tops.get(facts.key) ?? 0; // one comes back from a trial to where one was
  }, []);
  useLayoutEffect(() => {
    const measure = () => {
      if (!box.current) return;
      const { clientHeight: height, clientWidth: width } = box.current;
      setView((old) => ({ ...old, height, width }));
      onWidth(width);
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);

  const scrolled = ({ currentTarget: { scrollTop, clientHeight } }) => {
    const top = Math.floor(scrollTop / STEP) * STEP;
    tops.set(facts.key, scrollTop);
    if (top !== view.top || clientHeight !== view.height) setView((old) => ({ ...old, top, height: clientHeight }));
  };
  const toggle = (id, isOn) => {
    const next = new Set(selection);
    if (isOn ?? !next.has(id)) next.add(id);
    else next.delete(id);
    anchor.current = id;
    onSelect(next);
  };
  const extend = (id) => {
    const [from, to] = [rows.indexOf(anchor.current ?? id), rows.indexOf(id)].sort((a, b) => a - b);
    onSelect(new Set([...selection, ...rows.slice(Math.max(0, from), to + 1)]));
  };
  const chosen = (id, event) => {
    setActive(id);
    if (event.shiftKey && anchor.current !== null) extend(id);
    else toggle(id);
  };

  const goTo = (at, isExtending) => {
    if (rows.length === 0) return;
    const next = Math.max(0, Math.min(rows.length - 1, at));
    if (isExtending) {
      anchor.current ??= active ?? rows[next];
      extend(rows[next]);
    } else {
      anchor.current = rows[next];
    }
    setActive(rows[next]);
    const visible = box.current.clientHeight - 2 * ROW;
    if (next * ROW < box.current.scrollTop) box.current.scrollTop = next * ROW;
    else if (next * ROW > box.current.scrollTop + visible) box.current.scrollTop = next * ROW - visible;
  };

  const pressed = (event) => {
    if (event.target !== box.current) return;
    const page = Math.max(1, Math.floor(view.height / ROW) - 2);
    const steps = { ArrowDown: activeAt + 1, ArrowUp: activeAt - 1, PageDown: activeAt + page, PageUp: activeAt - page, Home: 0, End: rows.length - 1 };
    if (event.key in steps && !event.altKey && !event.ctrlKey && !event.metaKey) goTo(steps[event.key], event.shiftKey);
    else if (event.key === " " && activeAt >= 0) toggle(active);
    else if (event.key === "Enter" && activeAt >= 0) location.hash = hashOf({ page: "trial", key: facts.key, trial: active });
    else if (event.key === "a" && (event.ctrlKey || event.metaKey)) onSelect(new Set(rows));
    else if (event.key === "Escape" && selection.size > 0) onSelect(new Set());
    else return;
    event.preventDefault();
  };

  const first = Math.max(0, Math.floor(view.top / ROW) - MARGIN_ROWS);
  const last = Math.min(rows.length, Math.ceil((view.top + view.height) / ROW) + MARGIN_ROWS + 4);
  const pool = Math.ceil(view.height / ROW) + 2 * MARGIN_ROWS + 6; // a row that leaves on one side comes back on the other
  const { template, total, rightAligned } = useMemo(() => layoutOf(columns, store, facts, view.width < NARROW), [columns, store.version, facts.metric, view.width < NARROW]);
  const alignment = [...rightAligned].join();
  const selectedShown = useMemo(() => rows.reduce((n, id) => n + selection.has(id), 0), [rows, selection]);
  const front = useMemo(() => new Set(facts.pareto_front), [facts]);
  const act = useRef();
  act.current = chosen;
  return html`<div class="grid" role="grid" id="trials-grid" ref=${box} tabindex="0" aria-label="Trials" aria-multiselectable="true" aria-rowcount=${rows.length + 1} aria-colcount=${columns.length + 1}
      aria-activedescendant=${activeAt >= first && activeAt < last ? `row-${activeAt}` : null} aria-describedby="grid-help"
      style=${{ "--columns": template, "--rows": Math.max(1, rows.length), "--width": `${total}px` }} onKeyDown=${pressed} onScroll=${scrolled}
      onPointerEnter=${hold} onPointerLeave=${() => { release(); store.hover(null); }} onFocus=${(event) => event.target === box.current && active === null && rows.length > 0 && setActive(rows[0])}>
    <div role="rowgroup" class="grid-head"><div role="row" aria-rowindex="1" class="grid-row">
      <div role="columnheader" class="cell check" aria-colindex="1"><${AllBox} all=${rows} count=${selectedShown} onSelect=${onSelect} selection=${selection} /></div>
      ${columns.map((key, at) => html`<${Header} key=${key} name=${key} title=${titleOf(key, facts)} at=${at} sort=${sort} onSort=${onSort} isRight=${rightAligned.has(key)} />`)}
    </div></div>
    <div role="rowgroup" class="grid-body" style=${{ height: `${rows.length * ROW}px` }}>
      ${rows.slice(first, last).map((id, offset) => html`<${Row} key=${(first + offset) % pool} id=${id} at=${first + offset} store=${store} facts=${facts} columns=${columns} rightAligned=${rightAligned}
        isSelected=${selection.has(id)} isActive=${id === active} isHovered=${id === hovered} isBest=${id === best || front.has(id)} act=${act} version=${store.changedAt(id)} alignment=${alignment} start=${store.sharedStart} />`)}
    </div>
  </div>
  <p class="hidden" id="grid-help">Arrow keys move, Space selects, Enter opens a trial.</p>`;
}

function AllBox({ all, count, selection, onSelect }) {
  const box = useRef();
  useLayoutEffect(() => {
    box.current.indeterminate = count > 0 && count < all.length;
  });
  const change = (event) => {
    const next = new Set(selection);
    for (const id of all) event.target.checked ? next.add(id) : next.delete(id);
    onSelect(next);
  };
  return html`<input ref=${box} type="checkbox" id="select-all" aria-label=${`Select all ${all.length} shown`} checked=${all.length > 0 && count === all.length} onChange=${change} />`;
}

function Header({ name, title, at, sort, onSort, isRight: right }) {
  const is = sort === name || sort === `-${name}`;
  const descends = is && sort.startsWith("-");
  return html`<div role="columnheader" class=${`cell ${right ? "right" : ""} c-${kindOf(name)}`} aria-colindex=${at + 2} aria-sort=${is ? (descends ? "descending" : "ascending") : null}>
    <button type="button" title=${`Sort by ${title}`} onClick=${() => onSort(is && !descends ? `-${name}` : name)}><span class="cut">${shortened(title, 60).text}</span>${is && html`<span aria-hidden="true">${descends ? "↓" : "↑"}</span>`}</button>
  </div>`;
}

/** A row is drawn again only if something of it has changed: scrolling moves it without drawing it. */
class Row extends Component {
  shouldComponentUpdate(next) {
    return ["id", "at", "columns", "isSelected", "isActive", "isHovered", "isBest", "version", "alignment", "start"].some((name) => next[name] !== this.props[name]);
  }

  render({ id, at, store, facts, columns, rightAligned, isSelected, isActive, isHovered, isBest, act }) {
    const name = ["grid-row", isSelected && "selected", isActive && "active", isHovered && "hovered"].filter(Boolean).join(" ");
    const clicked = (event) => {
      if (event.target.closest("a, input") || String(window.getSelection()) !== "") return;
      act.current(id, event);
    };
    return html`<div role="row" id=${`row-${at}`} class=${name} data-trial=${id} aria-rowindex=${at + 2} aria-selected=${String(isSelected)} style=${{ transform: `translateY(${at * ROW}px)` }}
        onClick=${clicked} onMouseDown=${(event) => event.shiftKey && event.preventDefault()} onPointerEnter=${() => store.hover(id)}>
      <div role="gridcell" class="cell check" aria-colindex="1"><input type="checkbox" tabindex="-1" aria-label=${`Select trial ${id}`} checked=${isSelected} onClick=${(event) => act.current(id, event)} /></div>
      ${columns.map((key, column) => {
        const [content, title] = cellOf(key, id, store, facts, isBest);
        return html`<div role="gridcell" aria-colindex=${column + 2} title=${title} class=${`cell c-${kindOf(key)} ${rightAligned.has(key) ? "right" : ""}`}>${content}</div>`;
      })}
    </div>`;
  }
}

const none = () => html`<span class="dim" aria-label="none">–</span>`;

/** What a cell shows, and its title; few elements, since a fling draws hundreds of them. */
function cellOf(name, id, store, facts, isBest) {
  const value = store.value(id, name);
  const of = (key) => store.value(id, key);
  if (name === "id") {
    const note = of("note");
    return [html`<span class="dim number">#${of("index")}</span> <a tabindex="-1" class="cut" href=${hashOf({ page: "trial", key: facts.key, trial: id })}><${TrialId} store=${store} id=${id} /></a>${isBest && html`<span class="star" title=${facts.metric ? "The best trial" : "On the Pareto front"}><${Icon} name="star" /><span class="hidden">${facts.metric ? "best" : "on the Pareto front"}</span></span>`}${note && html`<span class="dim" title=${shortened(note).text}><${Icon} name="note" /><span class="hidden">has a note</span></span>`}`, of("name")];
  }
  if (name === "status") return [html`<${State} of=${stateAt(store, store.position(id))} />`, shortened(of("why") ?? "").text];
  if (value === null) return [none()];
  const kind = kindOf(name);
  if (kind === "seconds") return [duration(value)];
  if (kind === "time") return [html`<${Age} at=${value} />`];
  if (kind === "flag") return [value ? "yes" : "no"];
  if (typeof value === "number") return [number(value), String(value)];
  const text = plain(value);
  return [html`<span class="cut">${shortened(text, 120).text}</span>`, shortened(text).text];
}
