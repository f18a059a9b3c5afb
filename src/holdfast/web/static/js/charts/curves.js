// Learning curves of the selected trials; without a selection, of those that run and the best ten.

import { html, useCallback, useEffect, useMemo, useRef, useState } from "../../vendor/htm-preact.module.js";
import { Chart } from "./base.js";
import { Button, Check, Clear, Nothing, Select, Slider } from "./controls.js";
import { bandScene, lineScene, MANY } from "./curve_scenes.js";
import { useHovered, usePaced, useSame } from "./follow.js";
import { Legend } from "./legend.js";
import { useRows } from "./rows.js";
import { curves as drawnCurves, ranges } from "./pure/curves.js";
import { bestIds, nameOf } from "./pure/dimensions.js";
import { counted, duration, moment, short } from "./pure/numbers.js";
import { scaled } from "./pure/scales.js";
import { picking } from "./pure/selection.js";
import { assigned } from "./pure/slots.js";
import { cut } from "./pure/ticks.js";

const MOST_CURVES = 1000;
const MOST_RUNNING = 30;
const BEST = 10;
const AXES = [
  ["iteration", "iteration"],
  ["time", "training time"],
  ["clock", "wall clock"],
];
const SPREADS = [
  ["auto", "automatic"],
  ["lines", "lines"],
  ["mean", "mean, min to max"],
  ["quartiles", "median, quartiles"],
];

/** The trials to show: the selected ones, or those that run and the best. */
function chosen(store, facts, selection) {
  if (selection.size > 0) return [...selection].filter((id) => store.position(id) >= 0).slice(0, MOST_CURVES);
  const running = store.ids.filter((_, at) => store.columns.status[at] === "RUNNING").slice(0, MOST_RUNNING);
  return [...new Set([...bestIds(store, facts.mode, BEST), ...running])];
}

export function Curves({ store, facts, selection, onSelect, shown, api, view, onView, height = 380 }) {
  const [version, onDrawn] = usePaced(store);
  const hovered = useHovered(store);
  const names = [...new Set([facts.metric, ...(facts.metrics ?? [])])].filter(Boolean);
  const metric = names.includes(view.metric) ? view.metric : names[0];
  const settings = {
    axis: view.x ?? "iteration",
    smooth: Number(view.smooth ?? 0),
    logX: view.xlog === "1" && view.x !== "clock",
    logY: view.ylog === "1",
  };
  const ids = useSame(useMemo(() => chosen(store, facts, selection), [store, version, selection, facts.mode]));
  const loaded = useRows({ api, store, facts, ids, metric, version });
  const curves = useMemo(() => drawnCurves(ids, (id) => loaded.rows.get(id), settings), [ids, loaded.turn, ...Object.values(settings)]);
  const slots = useRef(new Map());
  slots.current = assigned(slots.current, ids);
  const [zoom, setZoom] = useState(null);
  useEffect(() => setZoom(null), [metric, ...Object.values(settings).filter((_, at) => at !== 1)]);
  const spread = view.spread && view.spread !== "auto" ? view.spread : curves.length > MANY ? "mean" : "lines";
  const best = useMemo(() => store.leader(facts), [store, version, facts]);
  const named = (id) => nameOf(store, id);
  const describe = (curve, at) => [
    [metric, short(curve.raw[at])],
    settings.smooth > 0 && ["smoothed", short(curve.ys[at])],
    ["iteration", short(curve.rows.iteration[curve.places[at]])],
    ["training time", duration(curve.rows.time_total_s[curve.places[at]])],
    ["reported", moment(curve.rows.timestamp[curve.places[at]])],
  ];
  const scene = useCallback(
    (size, theme) => {
      const parts = {
        curves,
        size,
        theme,
        metric,
        zoom,
        setZoom,
        slots: slots.current,
        best,
        nameOf: named,
        describe,
        mode: facts.mode,
        ...settings,
      };
      return spread === "lines" ? lineScene(parts) : bandScene({ ...parts, spread });
    },
    [curves, metric, zoom, spread, best, facts.mode],
  );
  const pick = picking(selection, onSelect);
  const zoomBy = (factor) => {
    const all = ranges(curves, zoom, { x: settings.logX, y: settings.logY });
    if (all.x !== null) setZoom({ x: scaled(all.x, factor, settings.logX), y: zoom?.y ?? null });
  };
  const controls = html`
    <div class="chart-controls">
      <${Select} label="Metric" value=${metric} options=${names.map((name) => [name, cut(name, 60)])} onChange=${(value) => onView({ metric: value })}
        />
      <${Select} label="Against" value=${settings.axis} options=${AXES} onChange=${(value) => onView({ x: value })} />
      ${settings.axis !== "clock" && html`<${Check} label="Log x" value=${settings.logX} onChange=${(on) => onView({ xlog: on ? "1" : "" })} />`}
      <${Check} label="Log y" value=${settings.logY} onChange=${(on) => onView({ ylog: on ? "1" : "" })} />
      <${Slider} label="Smoothing" value=${settings.smooth} onChange=${(value) => onView({ smooth: value ? String(value) : "" })} />
      <${Select} label="Show" value=${view.spread ?? "auto"} options=${SPREADS}
        onChange=${(value) => onView({ spread: value === "auto" ? "" : value })} />
      <${Clear} selection=${selection} shown=${shown} onClick=${() => onSelect(new Set())} />
    </div>`;
  if (metric === undefined) return html`<${Nothing}>No trial has reported a number yet. Curves appear with the first report.<//>`;
  if (curves.length === 0) return html`${controls}<${Nothing}>${why(loaded, ids, metric)}<//>`;
  return html`
    ${controls}
    <${Chart} name=${`Learning curves of ${metric}`} label=${labelOf(curves, metric, settings, best, named, spread)} scene=${scene} height=${height}
      hovered=${hovered} onDrawn=${onDrawn} onHover=${(id) => store.hover(id)} onPick=${pick} drag="rectangle" onReset=${() => setZoom(null)}
      table=${() => tableOf(curves, metric, settings)} note=${note(store, ids, selection, curves, loaded, spread, settings.smooth)}
      tools=${html`
        <${Button} text="+" label="Zoom in" onClick=${() => zoomBy(0.5)} />
        <${Button} text="−" label="Zoom out" onClick=${() => zoomBy(2)} disabled=${zoom === null} />
        <${Button} text="Reset zoom" onClick=${() => setZoom(null)} disabled=${zoom === null} />`} />
    ${spread === "lines" && html`<${Legend} curves=${curves} slots=${slots.current} store=${store} hovered=${hovered} facts=${facts} metric=${metric} onPick=${pick} />`}`;
}

function why(loaded, ids, metric) {
  if (ids.length === 0) return "No trial has reported yet. Curves appear with the first report.";
  if (loaded.error !== null) return loaded.error;
  if (loaded.loading) return `Reading the rows of ${counted(ids.length, "trial")}…`;
  const reason = ids.map((id) => loaded.rows.missing(id)).find(Boolean);
  return reason ?? `None of these ${counted(ids.length, "trial")} has reported ${metric} as a number.`;
}

function note(store, ids, selection, curves, loaded, spread, smooth) {
  const dropped = curves.reduce((sum, curve) => sum + curve.dropped, 0);
  const missing = ids.length - curves.length;
  return [
    selection.size > ids.length &&
      `Shown: the first ${ids.length.toLocaleString("en")} of ${selection.size.toLocaleString("en")} selected trials.`,
    selection.size === 0 && `Shown: running trials and the best ${BEST}. Select trials in the table to compare them.`,
    missing > 0 && `${counted(missing, "trial")} without rows.`,
    dropped > 0 && `${counted(dropped, "value")} of 0 or less cannot be on a log axis.`,
    loaded.error,
    smooth > 0 && `Smoothed: a point ${short((smooth / 100) ** 2 * 25)} % of the axis back weighs half.`,
    spread === "lines" && curves.length > MANY && "Colour: the newest value; what stands out is better.",
    curves.some(({ marks }) => marks.length > 0) && spread === "lines" && "▼ a new attempt continued here.",
    "Drag to zoom.",
  ]
    .filter(Boolean)
    .join(" ");
}

function labelOf(curves, metric, { axis, logY }, best, nameOf, spread) {
  const against = AXES.find(([key]) => key === axis)[1];
  const shape = spread === "lines" ? "" : spread === "mean" ? " as their mean, minimum and maximum" : " as their median and quartiles";
  const top = curves.find(({ id }) => id === best);
  return (
    `Learning curves of ${counted(curves.length, "trial")}${shape}: ${metric}${logY ? " (log)" : ""} against ${against}.` +
    (top ? ` The best trial, ${nameOf(best)}, is at ${short(top.raw.at(-1))} after iteration ${short(top.rows.iteration.at(-1))}.` : "")
  );
}

function tableOf(curves, metric, { smooth }) {
  const columns = ["trial", "iteration", "training time (s)", "timestamp", metric, ...(smooth > 0 ? ["smoothed"] : [])];
  const rows = curves.flatMap((curve) =>
    curve.places.map((place, at) => {
      const { iteration, time_total_s: time, timestamp } = curve.rows;
      return [curve.id, iteration[place], time[place], timestamp[place], curve.raw[at], ...(smooth > 0 ? [curve.ys[at]] : [])];
    }),
  );
  return { columns, rows };
}
