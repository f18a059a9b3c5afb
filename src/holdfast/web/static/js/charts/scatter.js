// Any two columns against each other, coloured by a third. A lasso selects trials.

import { html, useCallback, useMemo } from "../../vendor/htm-preact.module.js";
import { Chart } from "./base.js";
import { Check, Clear, Nothing, Select } from "./controls.js";
import { useHovered, usePaced } from "./follow.js";
import { pointScene } from "./point_scene.js";
import { Scale } from "./shades.js";
import { axisKeys, dimension, labelOf, modeOf, nameOf } from "./pure/dimensions.js";
import { counted } from "./pure/numbers.js";
import { picking } from "./pure/selection.js";

export function Scatter({ store, facts, selection, onSelect, view, onView, height = 380 }) {
  const [version, onDrawn] = usePaced(store);
  const hovered = useHovered(store);
  const keys = useMemo(() => axisKeys(store, facts), [store, version, facts]);
  const [goal, first] = [keys[0], keys.find((key) => key.startsWith("config/"))];
  const chosen = { x: known(view.sx, keys) ?? first ?? goal, y: known(view.sy, keys) ?? goal, color: known(view.sc, keys) ?? goal };
  const logs = { x: flag(view.sxlog), y: flag(view.sylog) };
  const memo = [store, version, facts.space];
  const x = useMemo(() => dimension(store, facts, chosen.x, logs.x), [chosen.x, logs.x, ...memo]);
  const y = useMemo(() => dimension(store, facts, chosen.y, logs.y), [chosen.y, logs.y, ...memo]);
  const shade = useMemo(() => dimension(store, facts, chosen.color), [chosen.color, ...memo]);
  const best = useMemo(() => store.leader(facts), [store, version, facts]);
  const scene = useCallback(
    (size, theme) => pointScene({ store, x, y, shade, mode: modeOf(facts, chosen.color), selection, best, onSelect, size, theme }),
    [x, y, shade, selection, best, store, version],
  );
  if (store.ids.length === 0) return html`<${Nothing}>There are no trials yet. A point appears with each trial that reports.<//>`;
  const options = keys.map((key) => [key, labelOf(key)]);
  const failed = store.columns.status.filter((status) => status === "ERROR").length;
  return html`
    <div class="chart-controls">
      <${Select} label="x" value=${chosen.x} options=${options} onChange=${(value) => onView({ sx: value, sxlog: "" })} />
      ${x.kind === "number" && html`<${Check} label="Log x" value=${x.log} onChange=${(on) => onView({ sxlog: on ? "1" : "0" })} />`}
      <${Select} label="y" value=${chosen.y} options=${options} onChange=${(value) => onView({ sy: value, sylog: "" })} />
      ${y.kind === "number" && html`<${Check} label="Log y" value=${y.log} onChange=${(on) => onView({ sylog: on ? "1" : "0" })} />`}
      <${Select} label="Colour" value=${chosen.color} options=${options} onChange=${(value) => onView({ sc: value })} />
      <${Scale} dim=${shade} mode=${modeOf(facts, chosen.color)} />
      <${Clear} selection=${selection} onClick=${() => onSelect(new Set())} />
    </div>
    <${Chart} name=${`Scatter plot of ${y.label} against ${x.label}`} scene=${scene} height=${height} hovered=${hovered} onDrawn=${onDrawn}
      drag="lasso" onHover=${(id) => store.hover(id)}
      onPick=${picking(selection, onSelect)} onReset=${() => onSelect(new Set())}
      label=${`${counted(store.ids.length, "trial")}: ${y.label} against ${x.label}, coloured by ${shade.label}.${failed > 0 ? ` ${counted(failed, "failed trial")} as crosses.` : ""}${best ? ` Best: ${nameOf(store, best)}.` : ""}`}
      table=${() => tableOf(store, [x, y, shade])} note=${note(failed)} />`;
}

const known = (key, keys) => (keys.includes(key) ? key : undefined);
const flag = (text) => (text === "1" ? true : text === "0" ? false : null);

const note = (failed) =>
  [
    failed > 0 && "× failed.",
    "★ best. “none”: trials without a y value. Drag around trials to select them, with Shift to add; click for one.",
  ]
    .filter(Boolean)
    .join(" ");

export function tableOf(store, dims) {
  const distinct = dims.filter(({ key }, at) => dims.findIndex((dim) => dim.key === key) === at);
  return {
    columns: ["trial", "status", ...distinct.map(({ label }) => label)],
    rows: store.ids.map((id, at) => [id, store.columns.status[at], ...distinct.map(({ values }) => values[at])]),
  };
}
