// Population-based training: who took over whose checkpoint, and how the values changed.

import { html, useCallback, useMemo } from "../../vendor/htm-preact.module.js";
import { Chart, tipOf } from "./base.js";
import { Check, Select } from "./controls.js";
import { toggled } from "./curves.js";
import { useHovered, useVersion } from "./follow.js";
import { laneScene } from "./lane_scene.js";
import { StepChart } from "./step_chart.js";
import { dimension, nameOf } from "./pure/dimensions.js";
import { changedNames, lineage, steps } from "./pure/lineage.js";
import { nearestPoint } from "./pure/nearest.js";
import { counted, isFinite, moment, short } from "./pure/numbers.js";

const MOST_LANES = 60;
const LANE_PX = 24;
const REACH_PX = 9;
const AXES = [["iteration", "iteration"], ["at", "wall clock"]];

export function Lineage({ store, facts, selection, onSelect, takeovers, view, onView }) {
  const version = useVersion(store, 2000);
  const hovered = useHovered(store);
  const axis = view.laxis === "at" ? "at" : "iteration";
  const start = axis === "at" ? facts.began_at : 0;
  const trials = useMemo(() => involved(store, takeovers, axis), [store, version, takeovers, axis]);
  const tree = useMemo(() => lineage(trials, takeovers, axis, start), [trials, takeovers, axis, start]);
  const names = useMemo(() => changedNames(takeovers), [takeovers]);
  const name = names.includes(view.lparam) ? view.lparam : names[0];
  const named = (id) => nameOf(store, id);
  const scene = useCallback((size, theme) => picture({ tree, axis, nameOf: named, selection, size, theme }), [tree, axis, selection, store]);
  const left = store.ids.length - trials.length;
  const curves = useMemo(() => trials.map((trial) => ({ id: trial.id, points: steps(trial, takeovers, name, axis, start) })), [trials, takeovers, name, axis, start]);
  const kind = name === undefined ? null : dimension(store, facts, `config/${name}`);
  return html`
    <div class="chart-controls"><${Select} label="Against" value=${axis} options=${AXES} onChange=${(value) => onView({ laxis: value })} /></div>
    <${Chart} name="Lineage" scene=${scene} height=${70 + LANE_PX * tree.lanes.length} hovered=${hovered} onHover=${(id) => store.hover(id)} onPick=${(id, event) => onSelect(toggled(selection, id, event.shiftKey || event.ctrlKey || event.metaKey))}
      label=${`Lineage of ${counted(trials.length, "trial")} with ${counted(takeovers.length, "takeover")}. ${families(tree, named)}`} table=${() => takeoverTable(takeovers, named)}
      note=${`A lane is a trial; an arrow is a takeover: the trial continued from the other one's checkpoint. The colour says in which trial the weights began. ${families(tree, named)}${left > 0 ? ` ${counted(left, "trial")} without takeovers not shown.` : ""}`} />
    ${name !== undefined && html`
      <div class="chart-controls"><${Select} label="Parameter over time" value=${name} options=${names.map((one) => [one, one])} onChange=${(value) => onView({ lparam: value, lplog: "" })} />
        ${kind.kind === "number" && html`<${Check} label="Log y" value=${view.lplog ? view.lplog === "1" : kind.log} onChange=${(on) => onView({ lplog: on ? "1" : "0" })} />`}</div>
      <${StepChart} ...${{ curves, name, axis, store, selection, onSelect, facts, log: kind.kind === "number" && (view.lplog ? view.lplog === "1" : kind.log), isCategory: kind.kind === "category" }} />`}`;
}

/** The trials with lanes: all, or those that took over or were taken over where there are too many. */
function involved(store, takeovers, axis) {
  const end = axis === "at" ? store.columns.reported_at : store.columns.iteration;
  const all = store.ids.map((id, at) => ({ id, end: end[at], params: Object.fromEntries(Object.entries(store.params).map(([name, values]) => [name, values[at]])) }));
  if (all.length <= MOST_LANES) return all;
  const some = new Set(takeovers.flatMap(({ trial_id: id, source }) => [id, source]));
  return all.filter(({ id }) => some.has(id)).slice(0, MOST_LANES);
}

function families(tree, nameOf) {
  const sizes = new Map();
  for (const { stretches } of tree.lanes) sizes.set(stretches.at(-1).origin, (sizes.get(stretches.at(-1).origin) ?? 0) + 1);
  const [origin, size] = [...sizes].sort((a, b) => b[1] - a[1])[0] ?? [];
  return origin === undefined ? "" : `${size} of ${counted(tree.lanes.length, "trial")} now ${size === 1 ? "has" : "have"} weights that began in ${nameOf(origin)}.`;
}

const changeText = (changes) => Object.entries(changes).map(([name, [before, after]]) => `${name} ${short(before)} → ${short(after)}`).join(", ");

function picture({ tree, axis, nameOf, selection, size, theme }) {
  const origins = [...new Set(tree.lanes.map(({ stretches }) => stretches.at(-1).origin))];
  const colorOf = (origin) => (origins.includes(origin) ? theme.palette[origins.indexOf(origin) % theme.palette.length] : theme.dim);
  const ends = tree.lanes.flatMap(({ stretches }) => stretches.flatMap(({ from, to }) => [from, to])).filter(isFinite);
  const range = [Math.min(...ends), Math.max(...ends)];
  const rows = tree.lanes.map(({ id, stretches }) => ({
    id,
    label: nameOf(id),
    bars: stretches.map(({ from, to, origin }) => ({ from, to, color: colorOf(origin), heading: nameOf(id), lines: [["weights began in", nameOf(origin)], axis === "at" ? ["from", moment(from)] : ["from iteration", short(from)], axis === "at" ? ["to", moment(to)] : ["to iteration", short(to)]] })),
  }));
  const row = new Map(tree.lanes.map(({ id }, at) => [id, at]));
  const arrows = tree.arrows.filter(({ id, source }) => row.has(id) && row.has(source));
  const { scene, place } = laneScene({
    rows,
    x: axis === "at" ? { kind: "time", range, title: "wall clock (local time)" } : { kind: "number", range, title: "iterations" },
    size,
    theme,
    thick: 9,
    selection,
    series: (_, laneOf) => [
      {
        type: "lines",
        coordinateSystem: "cartesian2d",
        silent: true,
        z: 5,
        symbol: ["circle", "arrow"],
        symbolSize: [5, 9],
        lineStyle: { color: theme.text, width: 1.3, opacity: 0.8 },
        data: arrows.map(({ id, source, to }) => ({ coords: [[to, laneOf(row.get(source))], [to, laneOf(row.get(id))]] })),
      },
      labels(arrows, row, laneOf, size, theme),
    ],
  });
  const heads = arrows.map(({ id, to }) => [place.x.pixel(to), place.y.pixel(tree.lanes.length - 1 - row.get(id))]);
  const pickLane = scene.pick;
  scene.pick = (px, py) => {
    const at = nearestPoint(heads, px, py, REACH_PX);
    if (at < 0) return pickLane(px, py);
    const { id, source, takeover, changes } = arrows[at];
    const values = Object.entries(changes).map(([name, [before, after]]) => [name, `${short(before)} → ${short(after)}`]);
    return { id, tip: tipOf(`${nameOf(id)} continued from ${nameOf(source)}`, [["it was at iteration", short(takeover.iteration)], ["and continued from", short(takeover.source_iteration)], ["at", moment(takeover.at)], ...values]) };
  };
  scene.overlay = (hovered) => {
    if (!row.has(hovered)) return null;
    const y = place.y.pixel(tree.lanes.length - 1 - row.get(hovered));
    return html`<rect x="1" y=${y - LANE_PX / 2} width=${size.width - 2} height=${LANE_PX} fill="none" stroke=${theme.text} stroke-width="1.5" rx="3" />`;
  };
  return scene;
}

const MOST_LABELS = 25;

/** What changed, next to the arrow's head; where labels would overlap, only the first one is shown. */
function labels(arrows, row, laneOf, size, theme) {
  const data = size.width < 700 || arrows.length > MOST_LABELS ? [] : arrows.map(({ id, to, changes }) => ({ value: [to, laneOf(row.get(id))], label: { formatter: () => changeText(changes) } }));
  return {
    type: "scatter",
    silent: true,
    symbolSize: 1,
    z: 6,
    data,
    itemStyle: { color: "transparent" },
    label: { show: true, position: "right", distance: 7, color: theme.text, backgroundColor: theme.veil, padding: [1, 3], fontSize: 11 },
    labelLayout: { hideOverlap: true },
  };
}

function takeoverTable(takeovers, nameOf) {
  const rows = [...takeovers].sort((a, b) => a.at - b.at).map(({ trial_id: id, source, iteration, source_iteration: from, changes, at }) => [nameOf(id), nameOf(source), iteration, from, changeText(changes), moment(at)]);
  return { columns: ["trial", "continued from", "its iteration", "source's iteration", "changes", "at"], rows };
}
