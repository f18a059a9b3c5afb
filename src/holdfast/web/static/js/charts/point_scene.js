// Trials as points of an x-y plot.

import { html } from "../../vendor/htm-preact.module.js";
import { tipOf } from "./base.js";
import { shades } from "./shades.js";
import { CROSS, STAR } from "./shapes.js";
import { nameOf, placeOn } from "./pure/dimensions.js";
import { isInside, nearestPoint } from "./pure/nearest.js";
import { moment, short } from "./pure/numbers.js";
import { plot } from "./pure/plot.js";
import { jitter } from "./pure/rungs.js";

const REACH_PX = 14;
const SPREAD = 0.5;

/**
 * `front` (places of trials) makes the others faint; `more(place)` returns further series. Trials that have an x but no y
 * value are on a strip below the plot.
 */
export function pointScene({ store, x, y, shade, mode, selection, best, onSelect, size, theme, front = null, more = () => [] }) {
  const hasStrip = store.ids.some((_, trial) => placeOn(x, x.values[trial]) !== null && placeOn(y, y.values[trial]) === null);
  const place = plot({ size, theme, x: { ...x, title: title(x) }, y: { ...y, title: title(y) }, ...(hasStrip ? { bottom: 72 } : {}) });
  const at = (dim, trial) => {
    const value = placeOn(dim, dim.values[trial]);
    return value !== null && dim.kind === "category" ? value + jitter(trial) * SPREAD : value;
  };
  const strip = place.rect.bottom + 13;
  const pixels = store.ids.map((_, trial) => {
    const [across, up] = [at(x, trial), at(y, trial)];
    if (across === null) return null;
    return [place.x.pixel(across), up === null ? strip + jitter(trial) * 8 : place.y.pixel(up)];
  });
  const colored = shades(shade, theme, mode);
  const point = (trial) => dot(pixels[trial], trial, { store, colored, theme, selection, best, isFront: front === null ? null : front.has(trial) });
  const order = store.ids.map((_, trial) => trial).filter((trial) => pixels[trial] !== null);
  const rank = (trial) => (store.ids[trial] === best ? 3 : front?.has(trial) ? 2 : selection.has(store.ids[trial]) ? 1 : 0);
  order.sort((a, b) => rank(a) - rank(b));
  return {
    option: {
      grid: [place.grid, { left: 0, right: 0, top: 0, bottom: 0, outerBoundsMode: "none" }],
      xAxis: [place.xAxis, { type: "value", min: 0, max: size.width, show: false, gridIndex: 1 }],
      yAxis: [place.yAxis, { type: "value", min: 0, max: size.height, inverse: true, show: false, gridIndex: 1 }],
      graphic: { elements: hasStrip ? stripGraphic(place.rect, strip, theme) : [] },
      series: [...more(place), { type: "scatter", xAxisIndex: 1, yAxisIndex: 1, silent: true, z: 3, data: order.map(point) }],
    },
    area(_, polygon, event) {
      const inside = store.ids.filter((_, trial) => pixels[trial] !== null && isInside(polygon, pixels[trial]));
      onSelect(new Set(event.shiftKey ? [...selection, ...inside] : inside));
    },
    pick(px, py) {
      const trial = nearestPoint(pixels, px, py, REACH_PX);
      if (trial < 0) return null;
      const id = store.ids[trial];
      const dims = [x, y, shade].filter(({ key, kind }, index, all) => kind !== "flat" && all.findIndex((dim) => dim.key === key) === index);
      const values = dims.map(({ label, kind, values }) => [label, kind === "time" ? moment(values[trial]) : short(values[trial])]);
      const error = store.columns.error?.[trial];
      return { id, tip: tipOf(nameOf(store, id), [...values, ["status", store.columns.status[trial]], error && ["error", error.slice(0, 120)]]) };
    },
    overlay(hovered) {
      const pixel = hovered === null ? null : pixels[store.position(hovered)] ?? null;
      return pixel && html`<circle cx=${pixel[0]} cy=${pixel[1]} r="9" fill="none" stroke=${theme.text} stroke-width="2.5" />`;
    },
  };
}

const title = ({ label, log }) => (log ? `${label} (log)` : label);

function dot(pixel, trial, { store, colored, theme, selection, best, isFront }) {
  const id = store.ids[trial];
  const { color, symbol } = colored(trial);
  const isOff = (selection.size > 0 && !selection.has(id)) || isFront === false;
  const failed = store.columns.status[trial] === "ERROR";
  const ring = selection.has(id) ? { borderColor: theme.text, borderWidth: 1.5 } : {};
  if (id === best) return { value: pixel, symbol: STAR, symbolSize: 19, itemStyle: { color, borderColor: theme.text, borderWidth: 1.2 } };
  if (failed) return { value: pixel, symbol: CROSS, symbolSize: store.ids.length > 2000 ? 6 : 10, itemStyle: { color: theme.bad, opacity: isOff ? 0.4 : 1, ...ring } };
  return { value: pixel, symbol, symbolSize: isFront || selection.has(id) ? 10 : store.ids.length > 2000 ? 5 : 8, itemStyle: { color, opacity: isOff ? 0.25 : 0.85, ...ring } };
}

function stripGraphic({ left, right, bottom }, strip, theme) {
  return [
    { type: "rect", silent: true, z: 0, shape: { x: left, y: bottom + 2, width: right - left, height: 22 }, style: { fill: theme.faint, opacity: 0.6 } },
    { type: "text", silent: true, z: 0, x: left - 6, y: strip, style: { text: "none", align: "right", verticalAlign: "middle", fill: theme.dim, font: `12px ${theme.font}` } },
  ];
}
