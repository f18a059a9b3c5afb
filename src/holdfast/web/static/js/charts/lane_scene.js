// Lanes: what lasted from when to when, one lane below the other.

import { tipOf } from "./base.js";
import { plot } from "./pure/plot.js";

/**
 * `rows` from top to bottom: `{id, label, bars: [{from, to, color, heading, lines, text?}]}`; `text` is written above the
 * bar, where it fits. `x` is the axis as in `plot`; `series(place, laneOf)` adds series (lanes are numbers on y).
 */
export function laneScene({ rows, x, size, theme, thick, textPx = 0, series = () => [], selection = new Set() }) {
  const categories = rows.map(({ label }) => label);
  const count = rows.length;
  const place = plot({ size, theme, x, y: { kind: "category", categories: [...categories].reverse(), every: 1, title: "" }, top: 10, right: 20 });
  place.yAxis.splitLine = { show: false };
  const laneOf = (row) => count - 1 - row;
  const px = (value) => place.x.pixel(value);
  const middle = (row) => place.y.pixel(laneOf(row)) + textPx / 2;
  const boxes = rows.flatMap(({ bars, id }, row) => bars.map((bar) => ({ ...bar, id, row, left: px(bar.from), width: Math.max(px(bar.to) - px(bar.from), 3), y: middle(row) })));
  const bars = boxes.map(({ left, width, y, color, id }) => ({
    type: "rect",
    silent: true,
    z: 2,
    shape: { x: left, y: y - thick / 2, width, height: thick, r: 2 },
    style: { fill: color, opacity: selection.size > 0 && !selection.has(id) ? 0.35 : 1 },
  }));
  const texts = boxes.filter(({ text }) => text).map((box) => words(box, thick, place.rect, theme));
  return {
    place,
    laneOf,
    boxes,
    scene: {
      option: { grid: place.grid, xAxis: place.xAxis, yAxis: place.yAxis, graphic: { elements: [...bars, ...texts] }, series: series(place, laneOf) },
      pick(mouseX, mouseY) {
        const hit = boxes.find(({ left, width, y }) => mouseX >= left - 2 && mouseX <= left + width + 2 && Math.abs(mouseY - y) <= thick / 2 + 4 + textPx / 2);
        return hit === undefined ? null : { id: hit.id, tip: tipOf(hit.heading, hit.lines) };
      },
    },
  };
}

const CHARACTER_PX = 7.2;

function words({ text, left, y }, thick, { left: edge, right }, theme) {
  const most = Math.floor((right - edge) / CHARACTER_PX);
  const shown = text.length > most ? `${text.slice(0, most - 1)}…` : text;
  const x = Math.max(Math.min(left, right - shown.length * CHARACTER_PX), edge + 2);
  return { type: "text", silent: true, z: 3, x, y: y - thick / 2 - 3, style: { text: shown, fill: theme.text, font: `12px ${theme.font}`, verticalAlign: "bottom" } };
}
