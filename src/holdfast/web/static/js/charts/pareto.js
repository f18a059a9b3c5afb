// Two goals against each other: the trials that no other trial beats, and the rest.

import { html, useCallback, useMemo } from "../../vendor/htm-preact.module.js";
import { Chart } from "./base.js";
import { Button, Check, Clear, Nothing, Select } from "./controls.js";
import { toggled } from "./curves.js";
import { useHovered, useVersion } from "./follow.js";
import { pointScene } from "./point_scene.js";
import { tableOf } from "./scatter.js";
import { dimension, goalsOf } from "./pure/dimensions.js";
import { paretoFront, stairs } from "./pure/front.js";
import { counted, short } from "./pure/numbers.js";
import { cut } from "./pure/ticks.js";

export function Pareto({ store, facts, selection, onSelect, view, onView, height = 380 }) {
  const version = useVersion(store);
  const hovered = useHovered(store);
  const goals = goalsOf(facts);
  const names = Object.keys(goals);
  const [nameX, nameY] = pair(view.px, view.py, names);
  const logs = { x: view.pxlog === "1", y: view.pylog === "1" };
  const memo = [store, version, facts.space];
  const x = useMemo(() => dimension(store, facts, `metrics/${nameX}`, logs.x), [nameX, logs.x, ...memo]);
  const y = useMemo(() => dimension(store, facts, `metrics/${nameY}`, logs.y), [nameY, logs.y, ...memo]);
  const modes = [goals[nameX], goals[nameY]];
  const places = useMemo(() => paretoFront(x.values, y.values, modes), [x, y, ...modes]);
  const scene = useCallback(
    (size, theme) => {
      const front = new Set(places);
      const more = (place) => [stair(stairs(places.map((at) => [x.values[at], y.values[at]]), modes), place, theme)];
      const named = { x: { ...x, label: `${x.label} (${better(modes[0])})` }, y: { ...y, label: `${y.label} (${better(modes[1])})` } };
      return pointScene({ store, ...named, shade: FLAT, mode: null, selection, best: null, onSelect, size, theme, front, more });
    },
    [x, y, places, selection, store, version],
  );
  if (names.length < 2) return html`<${Nothing}>This experiment has one goal${names.length ? ` (${names[0]})` : ""}, so there is no Pareto front. It needs several metrics in TuneConfig.<//>`;
  if (places.length === 0) return html`<${Nothing}>No trial has both ${nameX} and ${nameY} yet.<//>`;
  const options = names.map((name) => [name, `${cut(name, 60)} (${goals[name]})`]);
  return html`
    <div class="chart-controls">
      ${names.length > 2 && html`<${Select} label="x" value=${nameX} options=${options} onChange=${(value) => onView({ px: value, ...(value === nameY ? { py: nameX } : {}) })} />
        <${Select} label="y" value=${nameY} options=${options} onChange=${(value) => onView({ py: value, ...(value === nameX ? { px: nameY } : {}) })} />`}
      <${Check} label="Log x" value=${logs.x} onChange=${(on) => onView({ pxlog: on ? "1" : "" })} />
      <${Check} label="Log y" value=${logs.y} onChange=${(on) => onView({ pylog: on ? "1" : "" })} />
      <${Button} text="Select the front" onClick=${() => onSelect(new Set(places.map((at) => store.ids[at])))} />
      <${Clear} selection=${selection} onClick=${() => onSelect(new Set())} />
    </div>
    <${Chart} name=${`Pareto front of ${nameX} and ${nameY}`} scene=${scene} height=${height} hovered=${hovered} drag="lasso" onHover=${(id) => store.hover(id)}
      onPick=${(id, event) => onSelect(toggled(selection, id, event.shiftKey || event.ctrlKey || event.metaKey))} onReset=${() => onSelect(new Set())}
      label=${`${counted(places.length, "trial")} of ${store.ids.length} on the Pareto front of ${nameX} (${modes[0]}) and ${nameY} (${modes[1]}), from ${ends(x, y, places)}.`}
      table=${() => frontTable(store, places, [x, y])} note=${note(places, facts, names, nameX, nameY)} />`;
}

// All of one colour: the front itself is what is seen.
const FLAT = { key: "", label: "", kind: "flat", values: [] };

const better = (mode) => (mode === "max" ? "more is better" : "less is better");

function pair(x, y, names) {
  const first = names.includes(x) ? x : names[0];
  const second = names.includes(y) && y !== first ? y : names.find((name) => name !== first);
  return [first, second];
}

function ends(x, y, places) {
  const text = (at) => `${short(x.values[at])}, ${short(y.values[at])}`;
  return `${text(places[0])} to ${text(places.at(-1))}`;
}

function note(places, facts, names, nameX, nameY) {
  const all = names.length > 2 && facts.pareto_front?.length ? ` On the front of all ${names.length} goals: ${facts.pareto_front.length}.` : "";
  return `${counted(places.length, "trial")}: no other is better in one of ${nameX} and ${nameY} and at least as good in the other.${all} Drag around trials to select them.`;
}

function frontTable(store, places, dims) {
  const { columns, rows } = tableOf(store, dims);
  const front = new Set(places);
  return { columns: [...columns, "on the front"], rows: [...places.map((at) => [...rows[at], "yes"]), ...rows.flatMap((row, at) => (front.has(at) ? [] : [[...row, "no"]]))] };
}

function stair(corners, place, theme) {
  return { type: "line", silent: true, clip: true, z: 1, showSymbol: false, data: corners.map(([x, y]) => [place.forward.x(x), place.forward.y(y)]), lineStyle: { color: theme.palette[1], width: 2, type: "dashed" } };
}
