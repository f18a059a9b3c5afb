// Where an x-y plot is in its picture, and its axes for ECharts. All axes are linear to ECharts: a log axis gets logarithms.

import { axisMap } from "./scales.js";
import { prepared } from "./ticks.js";

/**
 * `{grid, xAxis, yAxis, x, y, rect, forward}` for a picture of `size`. `x` and `y` are described in `prepared` (ticks.js),
 * and come back as maps between values and pixels; `forward.x(value)` is what ECharts gets for a value.
 */
export function plot({ x, y, size, theme, top = 30, right = 16, exactX = false }) {
  const across = prepared(x, Math.max(Math.floor(size.width / 110), 2), exactX);
  const up = prepared(y, Math.max(Math.floor(size.height / 55), 2));
  const rect = { left: Math.min(up.textWidth + 14, size.width / 3), top, right: size.width - right, bottom: size.height - 46 };
  return {
    rect,
    grid: { left: rect.left, right, top, bottom: 46, outerBoundsMode: "none", containLabel: false },
    xAxis: axis(across, theme, { nameLocation: "middle", nameGap: 28 }),
    yAxis: axis(up, theme, { nameLocation: "end", nameGap: 12, nameTextStyle: { align: "left", color: theme.text, padding: [0, 0, 0, 6 - rect.left] } }),
    x: axisMap(across.range, [rect.left, rect.right], across.log),
    y: axisMap(up.range, [rect.bottom, rect.top], up.log),
    forward: { x: forward(across), y: forward(up) },
    ranges: { x: across.range, y: up.range },
    logs: { x: across.log, y: up.log },
  };
}

const forward = ({ log }) => (log ? (value) => (value > 0 ? Math.log10(value) : NaN) : (value) => value);

function axis(ready, theme, more) {
  const shown = forward(ready);
  const texts = new Map(ready.ticks.map(({ value, text }) => [shown(value), text]));
  const customValues = [...texts.keys()];
  return {
    type: "value",
    min: shown(ready.range[0]),
    max: shown(ready.range[1]),
    name: ready.title,
    axisLine: { show: true, onZero: false, lineStyle: { color: theme.line } },
    axisTick: { show: true, customValues, lineStyle: { color: theme.line } },
    axisLabel: { customValues, color: theme.dim, formatter: (value) => texts.get(value) ?? "", hideOverlap: true },
    splitLine: { lineStyle: { color: theme.faint } },
    ...more,
    nameTextStyle: { color: theme.text, ...more.nameTextStyle },
  };
}

/** Whether a pixel is inside of the plot. */
export const isWithin = (rect, px, py) => px >= rect.left && px <= rect.right && py >= rect.top && py <= rect.bottom;
