// How much each parameter explains of a metric, with what chance alone would give.

import { html, useCallback } from "../../vendor/htm-preact.module.js";
import { Chart, tipOf } from "./base.js";
import { Nothing, Select } from "./controls.js";
import { useLoaded } from "./follow.js";
import { goalsOf } from "./pure/dimensions.js";
import { counted, short } from "./pure/numbers.js";
import { cut } from "./pure/ticks.js";

const BAR_PX = 30;
const MOST_BARS = 30;
const ABOVE = "more than chance";
const WITHIN = "not more than chance";

export function Importance({ facts, api, view, onView }) {
  const names = [...new Set([...Object.keys(goalsOf(facts)), ...(facts.metrics ?? [])])];
  const metric = names.includes(view.imetric) ? view.imetric : names[0];
  const done = Object.entries(facts.counts ?? {}).reduce((sum, [status, n]) => sum + (status === "TERMINATED" || status === "ERROR" ? n : 0), 0);
  // A live experiment asks again when a twentieth more of its trials have ended.
  const turn = Math.floor(Math.log(done + 1) / Math.log(1.05));
  const { value, error, loading } = useLoaded(() => (metric === undefined ? Promise.resolve(null) : api.importance(facts.key, metric)), [api, facts.key, metric, turn]);
  const scene = useCallback((size, theme) => bars(value, size, theme), [value]);
  if (metric === undefined) return html`<${Nothing}>No trial has reported a number yet.<//>`;
  const controls = html`<div class="chart-controls"><${Select} label="Metric" value=${metric} options=${names.map((name) => [name, cut(name, 60)])} onChange=${(name) => onView({ imetric: name })} /></div>`;
  if (error !== null) return html`${controls}<${Nothing}>${error}<//>`;
  if (value === null || (loading && value.metric !== metric)) return html`${controls}<${Nothing}>Computing what explains ${metric}…<//>`;
  const entries = Object.entries(value.scores ?? {}).slice(0, MOST_BARS);
  if (entries.length === 0) return html`${controls}<${Nothing}>${value.note || `There are too few trials with ${metric} (${value.trials}) to say which parameter matters.`}<//>`;
  return html`${controls}
    <${Chart} name=${`Importance for ${metric}`} scene=${scene} height=${70 + BAR_PX * entries.length} label=${labelOf(value, entries)} table=${() => tableOf(value)}
      note=${`${counted(value.trials, "trial")}, algorithm ${value.algorithm}. ${hasChance(value) ? "The mark │ is what chance alone exceeds in 1 of 20 cases; hatched bars are below it. " : ""}${value.note ?? ""}`} />`;
}

const hasChance = ({ chance }) => Object.keys(chance ?? {}).length > 0;
const isAbove = (value, name) => !Object.hasOwn(value.chance ?? {}, name) || value.scores[name] > value.chance[name];

function labelOf(value, entries) {
  const above = entries.filter(([name]) => isAbove(value, name)).map(([name, score]) => `${name} ${short(score)}`);
  return `Importance for ${value.metric} from ${counted(value.trials, "trial")}: ${above.length > 0 ? above.join(", ") : "no parameter is above chance"}.`;
}

function tableOf(value) {
  const more = hasChance(value) ? ["chance", "verdict"] : [];
  const rows = Object.entries(value.scores).map(([name, score]) => [name, score, ...(more.length > 0 ? [value.chance[name], isAbove(value, name) ? ABOVE : WITHIN] : [])]);
  return { columns: ["parameter", `importance for ${value.metric} (0 to 1)`, ...more], rows };
}

function bars(value, size, theme) {
  const entries = Object.entries(value.scores).slice(0, MOST_BARS);
  const names = entries.map(([name]) => name);
  const left = Math.min(Math.max(...names.map((name) => cut(name, 28).length)) * 6.9 + 18, size.width * 0.4);
  const spread = value.spread ?? {};
  const limits = entries.flatMap(([name, score]) => [score + (spread[name] ?? 0), value.chance?.[name] ?? 0]);
  const most = Math.max(...limits, 0.01) * 1.12;
  const grid = { left, right: 24, top: 8, bottom: 46, outerBoundsMode: "none" };
  const bar = ([name, score]) => ({ value: score, itemStyle: isAbove(value, name) ? { color: theme.palette[0] } : { color: theme.dim, opacity: 0.75, decal: { symbol: "rect", dashArrayX: [1, 0], dashArrayY: [2, 4], rotation: -Math.PI / 4, color: theme.surface } } });
  const at = (x) => left + (x / most) * (size.width - left - grid.right);
  const rowPx = (size.height - grid.top - grid.bottom) / names.length;
  const rows = entries.map((_, row) => grid.top + rowPx * (row + 0.5));
  const ticksOf = (name) => value.chance?.[name] !== undefined;
  const signs = ([name, score], y) => [
    ...(ticksOf(name) ? [mark(at(value.chance[name]), y, rowPx, theme)] : []),
    ...(spread[name] ? [whisker(at(score - spread[name]), at(score + spread[name]), y, theme)] : []),
    words(short(Number(score.toPrecision(3))), at(Math.max(score + (spread[name] ?? 0), value.chance?.[name] ?? 0)) + 6, y, theme),
  ];
  return {
    option: {
      grid,
      xAxis: { type: "value", min: 0, max: most, name: `share of ${value.metric} that a parameter explains (0 to 1)`, nameLocation: "middle", nameGap: 28, nameTextStyle: { color: theme.text }, axisLabel: { color: theme.dim, hideOverlap: true, formatter: (tick) => (tick === most ? "" : short(tick)) }, splitLine: { lineStyle: { color: theme.faint } } },
      yAxis: { type: "category", inverse: true, data: names, axisTick: { show: false }, axisLine: { lineStyle: { color: theme.line } }, axisLabel: { color: theme.text, formatter: (name) => cut(name, Math.floor((left - 14) / 6.6)) } },
      series: [{ type: "bar", silent: true, barWidth: "56%", data: entries.map(bar) }],
      graphic: { elements: entries.flatMap((entry, row) => signs(entry, rows[row])) },
    },
    pick(px, py) {
      const row = Math.floor((py - grid.top) / rowPx);
      if (row < 0 || row >= entries.length) return null;
      const [name, score] = entries[row];
      return { id: null, tip: tipOf(name, [["importance", short(score)], spread[name] && ["standard error", short(spread[name])], ticksOf(name) && ["chance alone", short(value.chance[name])], ticksOf(name) && ["so it is", isAbove(value, name) ? ABOVE : WITHIN]]) };
    },
  };
}

const mark = (x, y, room, theme) => ({ type: "line", silent: true, z: 10, shape: { x1: x, x2: x, y1: y - room * 0.4, y2: y + room * 0.4 }, style: { stroke: theme.bad, lineWidth: 3 } });
const words = (text, x, y, theme) => ({ type: "text", silent: true, z: 10, x, y, style: { text, fill: theme.text, font: `12px ${theme.font}`, verticalAlign: "middle" } });
const whisker = (x1, x2, y, theme) => ({ type: "line", silent: true, z: 9, shape: { x1, x2, y1: y, y2: y }, style: { stroke: theme.text, lineWidth: 1.5 } });
