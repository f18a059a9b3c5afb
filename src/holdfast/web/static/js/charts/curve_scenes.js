// Learning curves as pictures: a line for each trial, or the middle and the spread of many.

import { html } from "../../vendor/htm-preact.module.js";
import { tipOf } from "./base.js";
import { STAR } from "./shapes.js";
import { strokeOf } from "./theme.js";
import { bands, grid } from "./pure/bands.js";
import { colors, mixed } from "./pure/colors.js";
import { pointsEach, pointsOf, ranges } from "./pure/curves.js";
import { nearestCurve } from "./pure/nearest.js";
import { counted, moment, short } from "./pure/numbers.js";
import { isWithin, plot } from "./pure/plot.js";
import { extent, zoomed } from "./pure/scales.js";
import { lowerBound } from "./pure/thin.js";
import { inUnit } from "./pure/ticks.js";

const REACH_PX = 24;
const RAW_UP_TO = 30;
// Colours and dashes repeat beyond so many curves.
export const MANY = 28;
const GRID = 240;

/** The plot of curves, and what both kinds of pictures share. */
function frame({ size, theme, metric, axis, logX, logY, zoom, setZoom }, range) {
  const x = across(axis, range.x, logX, zoom?.x ?? null);
  const { unit } = x;
  const place = plot({
    size,
    theme,
    x: { ...x, exact: true },
    y: { kind: "number", range: range.y, log: logY, title: metric, zoom: zoom?.y ?? null },
  });
  const forward = (value) => place.forward.x(value / unit);
  const maps = { x: { pixel: (value) => place.x.pixel(value / unit), value: (pixel) => place.x.value(pixel) * unit }, y: place.y };
  const area = (_, corners) => {
    const inside = (values, low, high) => values.map((value) => Math.min(Math.max(value, low), high));
    const { left, right, top, bottom } = place.rect;
    setZoom({
      x: zoomed(maps.x, inside([corners[0][0], corners[2][0]], left, right)),
      y: zoomed(maps.y, inside([corners[0][1], corners[2][1]], top, bottom)),
    });
  };
  const shown = place.ranges.x.map((value) => value * unit);
  return { ...place, forwardX: forward, maps, area, shown };
}

function across(axis, range, log, zoom) {
  if (axis === "clock") return { kind: "time", range, zoom, title: "wall clock (local time)", unit: 1 };
  if (axis === "iteration") return { kind: "number", range, zoom, log, title: "iterations", unit: 1, whole: true };
  const { title, seconds, scale } = inUnit("training time", (zoom ?? range)?.[1] ?? 0);
  return { kind: "number", range: range?.map(scale), zoom: zoom?.map(scale) ?? null, log, title, unit: seconds };
}

export function lineScene(parts) {
  const { curves, size, theme, slots, best, zoom, smooth, logX, logY, nameOf, describe } = parts;
  const place = frame(parts, ranges(curves, zoom, { x: logX, y: logY }));
  const most = pointsEach(curves.length, size.width);
  const ready = (points) => points.map(([x, y]) => [place.forwardX(x), y === null ? NaN : place.forward.y(y)]);
  const lines = curves.map((curve) => {
    const points = pointsOf(curve.xs, curve.ys, most, place.shown);
    return { curve, points, xs: points.map(([x]) => x) };
  });
  const faint =
    smooth > 0 && curves.length <= RAW_UP_TO
      ? curves.map((curve) => raw(curve, ready(pointsOf(curve.xs, curve.raw, most, place.shown)), theme, slots))
      : [];
  const stroke = strokes(parts);
  const series = lines.map(({ curve, points }) =>
    line(curve, ready(points), stroke(curve.id), { theme, best, many: curves.length > MANY }),
  );
  const marks = curves.flatMap(({ marks }) => marks.map(({ x, y }) => [place.forwardX(x), place.forward.y(y)]));
  return {
    option: {
      grid: place.grid,
      xAxis: place.xAxis,
      yAxis: place.yAxis,
      series: [...faint, ...series, restarts(marks, theme, curves.length > MANY)],
    },
    area: place.area,
    pick(px, py) {
      if (!isWithin(place.rect, px, py)) return null;
      const hit = nearestCurve(lines, place.maps.x, place.maps.y, px, py, REACH_PX);
      if (hit === null) return null;
      const { curve, xs } = lines[hit.at];
      const at = Math.min(lowerBound(curve.xs, xs[hit.index]), curve.xs.length - 1);
      const started = curve.marks.filter(({ x }) => Math.abs(place.maps.x.pixel(x) - px) < REACH_PX / 2);
      const restarted = started.map(({ iteration, at: when }) => ["continued", `from iteration ${short(iteration)}, ${moment(when)}`]);
      return { id: curve.id, tip: tipOf(nameOf(curve.id), [...describe(curve, at), ...restarted]) };
    },
    overlay(hovered) {
      const found = lines.find(({ curve }) => curve.id === hovered);
      if (found === undefined) return null;
      const { rect, maps } = place;
      const pixels = found.points
        .filter(([, y]) => y !== null)
        .map(([x, y]) => `${(maps.x.pixel(x) - rect.left).toFixed(1)},${(maps.y.pixel(y) - rect.top).toFixed(1)}`);
      const { color } = stroke(hovered);
      return html`<svg x=${rect.left} y=${rect.top} width=${rect.right - rect.left} height=${rect.bottom - rect.top}>
        <polyline points=${pixels.join(" ")} fill="none" stroke=${theme.surface} stroke-width="7" opacity="0.8" />
        <polyline points=${pixels.join(" ")} fill="none" stroke=${color} stroke-width="3.5" />
      </svg>`;
    },
  };
}

/** Colour and dash of each trial: its own, or, where these would repeat, by the newest value among all. */
function strokes({ curves, theme, slots, mode }) {
  if (curves.length <= MANY) return (id) => strokeOf(theme, slots.get(id));
  const list = colors(theme.mode);
  const sign = mode === "max" ? -1 : 1;
  const last = ({ raw }) => raw.findLast((value) => value !== null) ?? null;
  const order = [...curves].filter((curve) => last(curve) !== null).sort((a, b) => sign * (last(a) - last(b)));
  const ranks = new Map(order.map(({ id }, at) => [id, at / Math.max(order.length - 1, 1)]));
  return (id) => ({ color: mixed(list, ranks.get(id) ?? 1), type: "solid", rank: ranks.get(id) ?? 1 });
}

function line({ id, xs }, data, { color, type, rank = 0 }, { theme, best, many }) {
  return {
    type: "line",
    data,
    silent: true,
    clip: true,
    // A curve of one point would not be seen.
    showSymbol: xs.length === 1,
    symbolSize: 6,
    z: id === best ? 4 : 3 - rank,
    lineStyle: { color, type, width: id === best ? 3 : many ? 1 : 1.8, opacity: many && id !== best ? 0.7 : 1 },
    itemStyle: { color },
    markPoint: id === best ? bestMark(data, color, theme) : undefined,
  };
}

function bestMark(data, color, theme) {
  const last = data.findLast(([, y]) => !Number.isNaN(y));
  if (last === undefined) return undefined;
  return {
    silent: true,
    symbol: STAR,
    symbolSize: 15,
    itemStyle: { color, borderColor: theme.surface, borderWidth: 1 },
    label: { show: false },
    data: [{ coord: last }],
  };
}

function raw({ id }, data, theme, slots) {
  return {
    type: "line",
    data,
    silent: true,
    clip: true,
    showSymbol: false,
    z: 1,
    lineStyle: { color: strokeOf(theme, slots.get(id)).color, width: 1, opacity: 0.25 },
  };
}

function restarts(data, theme, many) {
  return {
    type: "scatter",
    data,
    silent: true,
    clip: true,
    symbol: "triangle",
    symbolRotate: 180,
    symbolSize: many ? 6 : 10,
    z: 5,
    itemStyle: { color: theme.surface, borderColor: theme.text, borderWidth: 1.5 },
  };
}

export function bandScene(parts) {
  const { curves, theme, spread, zoom, logX, logY, metric } = parts;
  const [middle, low, high] = spread === "mean" ? ["mean", "min", "max"] : ["median", "low", "high"];
  const found = bands(
    curves.map(({ xs, ys }) => ({ xs, ys })),
    grid(curves, GRID, logX),
  ).filter((one) => one.n > 0);
  const all = ranges(curves, zoom, { x: logX, y: logY });
  const y =
    zoom?.y ??
    extent(
      found.flatMap((one) => [one[low], one[high]]),
      logY,
    );
  const place = frame(parts, { x: all.x, y });
  const xs = found.map(({ x }) => x);
  const outline = [...found.map((one) => [one.x, one[low]]), ...[...found].reverse().map((one) => [one.x, one[high]])];
  const ready = ([x, value]) => [place.forwardX(x), place.forward.y(value)];
  const color = theme.palette[0];
  return {
    option: {
      grid: place.grid,
      xAxis: place.xAxis,
      yAxis: place.yAxis,
      series: [
        polygon(outline.map(ready), color),
        {
          type: "line",
          data: found.map((one) => ready([one.x, one[middle]])),
          silent: true,
          showSymbol: false,
          clip: true,
          lineStyle: { color, width: 2.5 },
        },
      ],
    },
    area: place.area,
    pick(px, py) {
      if (!isWithin(place.rect, px, py) || xs.length === 0) return null;
      const one = found[Math.min(lowerBound(xs, place.maps.x.value(px)), found.length - 1)];
      const names = spread === "mean" ? ["mean", "lowest", "highest"] : ["median", "lower quartile", "upper quartile"];
      const lines = [middle, low, high].map((key, at) => [names[at], short(one[key])]);
      return {
        id: null,
        tip: tipOf(`${metric} of ${counted(one.n, "trial")}`, [
          ...lines,
          [place.xAxis.name.replace(/ \(.*/, ""), place.xAxis.name.startsWith("wall") ? moment(one.x) : short(one.x)],
        ]),
      };
    },
  };
}

/** A filled polygon in the coordinates of the axes. */
function polygon(points, color) {
  return {
    type: "custom",
    silent: true,
    clip: true,
    data: points.length > 0 ? [points[0]] : [],
    renderItem: (_, api) => ({
      type: "polygon",
      shape: { points: points.map((point) => api.coord(point)) },
      style: { fill: color, opacity: 0.22 },
    }),
  };
}
