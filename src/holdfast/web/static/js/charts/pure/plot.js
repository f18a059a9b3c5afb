// Where an x-y plot is in its picture, and its axes for ECharts. All axes are linear to ECharts: a log axis gets logarithms.

import { axisMap } from "./scales.js";
import { cut, prepared } from "./ticks.js";

const BOTTOM = 46;

/**
 * `{grid, xAxis, yAxis, x, y, rect, forward}` for a picture of `size`. `x` and `y` are described in `prepared` (ticks.js),
 * and come back as maps between values and pixels; `forward.x(value)` is what ECharts gets for a value. A larger
 * `bottom` leaves a strip between the plot and the labels of x.
 */
export function plot({ x, y, size, theme, top = 30, right = 16, bottom = BOTTOM }) {
  const across = prepared(x, Math.max(Math.floor(size.width / 110), 2), x.exact);
  const up = prepared(y, Math.max(Math.floor(size.height / 55), 2), y.exact);
  const rect = { left: Math.min(up.textWidth + 14, size.width / 3), top, right: size.width - right, bottom: size.height - bottom };
  return {
    rect,
    grid: { left: rect.left, right, top, bottom, outerBoundsMode: "none", containLabel: false },
    xAxis: axis(across, theme, { nameLocation: "middle", nameGap: bottom - 18 }, bottom - BOTTOM),
    yAxis: axis(up, theme, { nameLocation: "end", nameGap: 12, nameTextStyle: { align: "left", color: theme.text, padding: [0, 0, 0, 6 - rect.left] } }),
    x: axisMap(across.range, [rect.left, rect.right], across.log),
    y: axisMap(up.range, [rect.bottom, rect.top], up.log),
    forward: { x: forward(across), y: forward(up) },
    ranges: { x: across.range, y: up.range },
    logs: { x: across.log, y: up.log },
  };
}

const forward = ({ log }) => (log ? (value) => (value > 0 ? Math.log10(value) : NaN) : (value) => value);

function axis(ready, theme, more, strip = 0) {
  const shown = forward(ready);
  const texts = new Map(ready.ticks.map(({ value, text }) => [shown(value), text]));
  const customValues = [...texts.keys()];
  return {
    type: "value",
    min: shown(ready.range[0]),
    max: shown(ready.range[1]),
    name: cut(ready.title, 70),
    axisLine: { show: true, onZero: false, lineStyle: { color: theme.line } },
    axisTick: { show: strip === 0, customValues, lineStyle: { color: theme.line } },
    axisLabel: { customValues, margin: 8 + strip, color: theme.dim, formatter: (value) => texts.get(value) ?? "", hideOverlap: true },
    splitLine: { lineStyle: { color: theme.faint } },
    ...more,
    nameTextStyle: { color: theme.text, ...more.nameTextStyle },
  };
}

/** Whether a pixel is inside of the plot. */
export const isWithin = (rect, px, py) => px >= rect.left && px <= rect.right && py >= rect.top && py <= rect.bottom;
