// One parameter over time, as takeovers changed it: a step line for each trial.

import { html, useCallback } from "../../vendor/htm-preact.module.js";
import { Chart, tipOf } from "./base.js";
import { useHovered } from "./follow.js";
import { strokeOf } from "./theme.js";
import { categoriesOf, nameOf, placeOn } from "./pure/dimensions.js";
import { nearestCurve } from "./pure/nearest.js";
import { counted, isFinite, moment, number, short } from "./pure/numbers.js";
import { plot } from "./pure/plot.js";
import { extent } from "./pure/scales.js";
import { picking } from "./pure/selection.js";

const REACH_PX = 14;

export function StepChart({ curves, name, axis, store, selection, onSelect, log, isCategory }) {
  const hovered = useHovered(store);
  const scene = useCallback(
    (size, theme) => picture({ curves, name, axis, store, selection, log, isCategory, size, theme }),
    [curves, name, axis, store, selection, log, isCategory],
  );
  return html`<${Chart} name=${`${name} over time`} scene=${scene} height=${280} hovered=${hovered} onHover=${(id) => store.hover(id)}
    onPick=${picking(selection, onSelect)}
    label=${`${name} of ${counted(curves.length, "trial")} over time; a step is a takeover that changed it.`} note="A step is a takeover that changed the value."
    table=${() => ({ columns: ["trial", axis === "at" ? "at" : "iteration", name], rows: curves.flatMap(({ id, points }) => points.slice(0, -1).map(([x, value]) => [id, axis === "at" ? moment(x) : x, value])) })} />`;
}

function picture({ curves, name, axis, store, selection, log, isCategory, size, theme }) {
  const values = curves.flatMap(({ points }) => points.map(([, value]) => (isCategory ? value : number(value))));
  const scale = isCategory ? { kind: "category", categories: categoriesOf(values) } : { kind: "number", range: extent(values, log), log };
  const y = { ...scale, title: log ? `${name} (log)` : name };
  const ends = curves.flatMap(({ points }) => points.map(([x]) => x)).filter(isFinite);
  const range = extent(ends) ?? [0, 1];
  const x = axis === "at" ? { kind: "time", range, title: "wall clock (local time)" } : { kind: "number", range, title: "iterations", whole: true };
  const place = plot({ size, theme, x, y });
  const lines = curves.map(({ id, points }) => ({
    id,
    points: stepped(points.map(([at, value]) => [at, placeOn(y, isCategory ? value : number(value))])),
    original: points,
  }));
  for (const line of lines) line.xs = line.points.map(([at]) => at);
  const drawn = (points) => points.map(([at, value]) => [at, value === null ? NaN : place.forward.y(value)]);
  return {
    option: {
      grid: place.grid,
      xAxis: place.xAxis,
      yAxis: place.yAxis,
      series: lines.map(({ id, points }, slot) => {
        const isOff = selection.size > 0 && !selection.has(id);
        const { color, type } = strokeOf(theme, slot);
        return {
          type: "line",
          silent: true,
          showSymbol: false,
          data: drawn(points),
          lineStyle: { color, type, width: isOff ? 1 : 2, opacity: isOff ? 0.25 : 0.9 },
        };
      }),
    },
    pick(px, py) {
      const hit = nearestCurve(lines, place.x, place.y, px, py, REACH_PX);
      if (hit === null) return null;
      const { id, original } = lines[hit.at];
      const at = place.x.value(px);
      const [, value] = original.findLast(([from]) => from <= at) ?? original[0];
      return {
        id,
        tip: tipOf(nameOf(store, id), [[name, short(value)], axis === "at" ? ["at", moment(at)] : ["iteration", short(Math.round(at))]]),
      };
    },
    overlay(hovered) {
      const line = lines.find(({ id }) => id === hovered);
      if (line === undefined) return null;
      const pixels = line.points.filter(([, value]) => value !== null).map(([at, value]) => `${place.x.pixel(at)},${place.y.pixel(value)}`);
      return html`<polyline points=${pixels.join(" ")} fill="none" stroke=${theme.text} stroke-width="3" />`;
    },
  };
}

/** The corners of steps: a value lasts until the next one. */
function stepped(points) {
  return points.flatMap(([x, value], at) =>
    at > 0 && points[at - 1][1] !== value
      ? [
          [x, points[at - 1][1]],
          [x, value],
        ]
      : [[x, value]],
  );
}
