// Parallel coordinates as a picture.

import { html } from "../../vendor/htm-preact.module.js";
import { tipOf } from "./base.js";
import { shades } from "./shades.js";
import { modeOf, nameOf } from "./pure/dimensions.js";
import { lineOf, parallelAxes } from "./pure/lanes.js";
import { nearestCurve } from "./pure/nearest.js";
import { isFinite, moment, short } from "./pure/numbers.js";
import { cut } from "./pure/ticks.js";

const REACH_PX = 12;
const AXIS_PX = 26;
const TIP_LINES = 10;
const SAME = { pixel: (value) => value, value: (pixel) => pixel };

export const isNarrow = (width) => width < 560;

export function parallelScene({ store, facts, dims, shade, selection, best, brushes, brush, size, theme }) {
  const narrow = isNarrow(size.width);
  const axes = parallelAxes(dims, size, narrow, ({ key }) => modeOf(facts, key) === "min");
  const lines = store.ids.map((_, trial) => lineOf(axes, trial, narrow));
  const across = narrow ? 1 : 0;
  const curves = lines.map((points) => ({ points: narrow ? points.map(([x, y]) => [y, x]) : points, xs: axes.map(({ at }) => at) }));
  const options = { theme, size, selection, best, ids: store.ids, shade: shades(shade, theme, modeOf(facts, shade?.key)), order: paintOrder(shade, modeOf(facts, shade?.key), store.ids) };
  return {
    option: {
      grid: { left: 0, right: 0, top: 0, bottom: 0, outerBoundsMode: "none" },
      xAxis: { type: "value", min: 0, max: size.width, show: false },
      yAxis: { type: "value", min: 0, max: size.height, inverse: true, show: false },
      graphic: { elements: axes.flatMap((axis) => axisGraphic(axis, narrow, theme, size, axes)) },
      series: series(lines, options),
    },
    area(_, corners) {
      const [[ax, ay], , [bx, by]] = corners;
      const [start, end] = narrow ? [ay, by] : [ax, bx];
      const middle = axes.filter(({ at }) => at >= Math.min(start, end) - AXIS_PX && at <= Math.max(start, end) + AXIS_PX);
      const axis = nearestAxis(middle, start);
      if (axis === undefined) return;
      const along = narrow ? [ax, bx] : [ay, by];
      const isMissing = axis.missing !== null && along.every((pixel) => Math.abs(pixel - axis.missing) < 12);
      brush(axis.dim.key, isMissing ? "missing" : along.map(axis.value).sort((a, b) => a - b));
    },
    pick(px, py) {
      const [main, side] = narrow ? [py, px] : [px, py];
      const hit = nearestCurve(curves, SAME, SAME, main, side, REACH_PX);
      if (hit === null) return null;
      const id = store.ids[hit.at];
      const more = dims.length > TIP_LINES ? [["…", `and ${dims.length - TIP_LINES} more`]] : [];
      const values = dims.slice(-TIP_LINES).map(({ label, kind, values }) => [label, kind === "time" ? moment(values[hit.at]) : short(values[hit.at])]);
      return { id, tip: tipOf(nameOf(store, id), [...values, ...more]) };
    },
    overlay(hovered) {
      const trial = hovered === null ? -1 : store.position(hovered);
      return html`
        ${axes.filter(({ dim }) => brushes[dim.key] !== undefined).map((axis) => brushed(axis, brushes[axis.dim.key], narrow))}
        ${trial >= 0 && html`<polyline points=${lines[trial].map((point) => point.map((one) => one.toFixed(1)).join(",")).join(" ")} fill="none" stroke=${theme.surface} stroke-width="6" />
          <polyline points=${lines[trial].map((point) => point.map((one) => one.toFixed(1)).join(",")).join(" ")} fill="none" stroke=${theme.text} stroke-width="3" />`}`;
    },
  };
}

function nearestAxis(axes, at) {
  return [...axes].sort((a, b) => Math.abs(a.at - at) - Math.abs(b.at - at))[0];
}

function brushed(axis, range, narrow) {
  const [low, high] = range === "missing" ? [axis.missing - 8, axis.missing + 8] : range.map((value) => axis.toPixel(value)).sort((a, b) => a - b);
  const box = narrow ? { x: low, width: high - low, y: axis.at - 8, height: 16 } : { x: axis.at - 8, width: 16, y: low, height: high - low };
  return html`<rect class="chart-dragged" ...${box} />`;
}

/** The trials in the order in which they are painted: the best values of a goal last, above the others. */
function paintOrder(shade, mode, ids) {
  const order = ids.map((_, trial) => trial);
  if (mode === null) return order;
  const value = (trial) => (isFinite(shade.values[trial]) ? (mode === "max" ? shade.values[trial] : -shade.values[trial]) : -Infinity);
  return order.sort((a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : a - b));
}

function series(lines, { theme, selection, best, ids, shade, order: painted }) {
  const faint = selection.size > 0;
  const opacity = lines.length > 3000 ? 0.08 : lines.length > 300 ? 0.45 : 0.8;
  const style = (trial) => {
    const isOff = faint && !selection.has(ids[trial]);
    return { color: isOff ? theme.line : shade(trial).color, width: isOff ? 0.7 : faint ? 1.6 : 1.1, opacity: isOff ? 0.35 : faint ? 0.9 : opacity };
  };
  const item = (trial) => ({ coords: lines[trial], lineStyle: style(trial) });
  const trials = painted.filter((trial) => ids[trial] !== best);
  // The selected ones above the others.
  const order = faint ? [...trials.filter((trial) => !selection.has(ids[trial])), ...trials.filter((trial) => selection.has(ids[trial]))] : trials;
  const top = ids.indexOf(best);
  const all = { type: "lines", coordinateSystem: "cartesian2d", polyline: true, silent: true, progressive: 2000, progressiveThreshold: 4000, data: order.map(item) };
  const first = { type: "lines", coordinateSystem: "cartesian2d", polyline: true, silent: true, zlevel: 1, data: top < 0 ? [] : [{ coords: lines[top], lineStyle: { color: theme.text, width: 2.5, type: "dashed", opacity: 1 } }] };
  return [all, first];
}

function axisGraphic({ dim, at, from, to, missing, ticks }, narrow, theme, size, axes) {
  const ends = [from, to, ...(missing === null ? [] : [missing])];
  const [low, high] = [Math.min(...ends), Math.max(...ends)];
  const text = (words, x, y, more) => ({ type: "text", silent: true, zlevel: 2, x, y, style: { text: words, fill: theme.text, font: `12px ${theme.font}`, backgroundColor: theme.veil, padding: [1, 3], ...more } });
  const room = Math.max(Math.floor((axes.length > 1 ? Math.abs(axes[1].at - axes[0].at) : size.width) / 7), 6);
  const title = narrow ? text(cut(dim.label + (dim.log ? " (log)" : ""), 40), 4, at - 28, { font: `600 12px ${theme.font}` }) : text(cut(dim.label + (dim.log ? " (log)" : ""), room), at, 16, { align: "center", font: `600 12px ${theme.font}` });
  const marks = ticks.flatMap(({ text: words, px }) => [
    { type: "line", silent: true, zlevel: 2, shape: narrow ? { x1: px, x2: px, y1: at - 3, y2: at + 3 } : { x1: at - 3, x2: at + 3, y1: px, y2: px }, style: { stroke: theme.dim } },
    narrow ? text(cut(words, 9), px, at + 5, { align: "center", fill: theme.dim }) : text(cut(words, Math.max(room - 2, 5)), at + 7, px, { verticalAlign: "middle", fill: theme.dim }),
  ]);
  const axis = { type: "line", silent: true, zlevel: 2, shape: narrow ? { x1: low, x2: high, y1: at, y2: at } : { x1: at, x2: at, y1: low, y2: high }, style: { stroke: theme.dim, lineWidth: 1.5 } };
  return [axis, title, ...marks];
}
