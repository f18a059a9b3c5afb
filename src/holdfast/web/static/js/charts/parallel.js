// Parallel coordinates: each trial a line across its parameters and the metric. Brushing axes selects trials.

import { html, useCallback, useEffect, useMemo, useState } from "../../vendor/htm-preact.module.js";
import { AxisMenu } from "./axis_menu.js";
import { Chart } from "./base.js";
import { Button, Nothing, Select } from "./controls.js";
import { useHovered, usePaced } from "./follow.js";
import { isNarrow, parallelScene } from "./parallel_scene.js";
import { Scale } from "./shades.js";
import { axisKeys, dimension, labelOf, modeOf, placeOn } from "./pure/dimensions.js";
import { counted } from "./pure/numbers.js";
import { picking } from "./pure/selection.js";

const MOST_AXES = 8;

export function Parallel({ store, facts, selection, onSelect, view, onView, height = 380 }) {
  const [version, onDrawn] = usePaced(store);
  const hovered = useHovered(store);
  const keys = useMemo(() => axisKeys(store, facts), [store, version, facts]);
  const goal = facts.metric && store.column(`metrics/${facts.metric}`) ? `metrics/${facts.metric}` : null;
  const axes = useMemo(() => chosenAxes(view.axes, keys, facts, goal, store), [view.axes, keys, goal]);
  const color = keys.includes(view.color) ? view.color : (goal ?? keys[0]);
  const dims = useMemo(
    () => axes.map((key) => dimension(store, facts, key)).filter(({ kind }) => kind !== "empty"),
    [axes, store, version, facts.space],
  );
  const shade = useMemo(() => (color === undefined ? null : dimension(store, facts, color)), [color, store, version, facts.space]);
  const best = useMemo(() => store.leader(facts), [store, version, facts]);
  const [brushes, setBrushes] = useState({});
  // A selection that was cleared elsewhere has no brushes.
  useEffect(() => {
    if (selection.size === 0) setBrushes((before) => (Object.keys(before).length === 0 ? before : {}));
  }, [selection.size === 0]);
  const brush = (key, range) => {
    const next = { ...brushes, [key]: range };
    if (range === null) delete next[key];
    setBrushes(next);
    onSelect(new Set(Object.keys(next).length === 0 ? [] : inside(store, dims, next)));
  };
  const scene = useCallback(
    (size, theme) => parallelScene({ store, facts, dims, shade, selection, best, brushes, brush, size, theme }),
    [dims, shade, selection, best, brushes, store, version],
  );
  if (store.ids.length === 0) return html`<${Nothing}>There are no trials yet. A line appears with each trial.<//>`;
  if (dims.length < 2)
    return html`<${Nothing}>Parallel coordinates need two axes: the trials have no varied parameters, or no values yet.<//>`;
  const narrow = isNarrow(innerWidth);
  const isBrushed = Object.keys(brushes).length > 0;
  return html`
    <div class="chart-controls">
      <${AxisMenu} keys=${keys} chosen=${axes} onChange=${(next) => onView({ axes: next.join(",") })} />
      <${Select} label="Colour" value=${color} options=${keys.map((key) => [key, labelOf(key)])} onChange=${(value) => onView({ color: value })} />
      <${Scale} dim=${shade} mode=${modeOf(facts, color)} />
      ${
        (isBrushed || selection.size > 0) &&
        html`<${Button} text="Clear selection" onClick=${() => {
          setBrushes({});
          onSelect(new Set());
        }} />`
      }
    </div>
    <${Chart} name="Parallel coordinates" scene=${scene} height=${narrow ? 120 + 78 * dims.length : height} hovered=${hovered} onDrawn=${onDrawn}
      drag="rectangle"
      label=${`Parallel coordinates of ${counted(store.ids.length, "trial")} over ${dims.map(({ label }) => label).join(", ")}, coloured by ${labelOf(color)}. ${counted(selection.size, "trial")} selected.`}
      onHover=${(id) => store.hover(id)} onPick=${picking(selection, onSelect)} onReset=${() => {
        setBrushes({});
        onSelect(new Set());
      }}
      table=${() => ({ columns: ["trial", ...dims.map(({ label }) => label)], rows: store.ids.map((id, at) => [id, ...dims.map(({ values }) => values[at])]) })}
      note=${note(dims, facts, narrow)} />`;
}

function chosenAxes(text, keys, facts, goal, store) {
  const asked = (text ?? "").split(",").filter((key) => keys.includes(key));
  if (asked.length >= 2) return asked;
  const varied = (facts.varied ?? []).map((name) => `config/${name}`).filter((key) => keys.includes(key));
  const first = varied.length > 0 ? varied : Object.keys(store.params).map((name) => `config/${name}`);
  return [...first.slice(0, MOST_AXES - 1), ...(goal ? [goal] : [])];
}

function note(dims, facts, narrow) {
  const best =
    dims.at(-1).key === `metrics/${facts.metric}`
      ? `${facts.metric} has its best values ${narrow ? "at the right" : "at the top"}; the dashed line is the best trial. `
      : "";
  return `${best}Drag along an axis to select the trials inside; again on other axes to narrow. Click a line for one trial. “–” is a value that a trial does not have.`;
}

/** The ids of the trials that are inside of every brush ({key: [low, high]} in places on the axis, or "missing"). */
function inside(store, dims, brushes) {
  const tests = dims.filter(({ key }) => brushes[key] !== undefined).map((dim) => [dim, brushes[dim.key]]);
  return store.ids.filter((_, at) =>
    tests.every(([dim, range]) => {
      const place = placeOn(dim, dim.values[at]);
      if (range === "missing" || place === null) return range === "missing" && place === null;
      return place >= range[0] && place <= range[1];
    }),
  );
}
