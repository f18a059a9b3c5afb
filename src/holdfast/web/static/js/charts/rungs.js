// Rungs: each trial's value where the scheduler judged it, and what became of it there.

import { html, useCallback, useMemo } from "../../vendor/htm-preact.module.js";
import { Chart, tipOf } from "./base.js";
import { Check, Select } from "./controls.js";
import { useHovered, useVersion } from "./follow.js";
import { CROSS } from "./shapes.js";
import { useTheme } from "./theme.js";
import { nameOf } from "./pure/dimensions.js";
import { nearestPoint } from "./pure/nearest.js";
import { counted, isFinite, moment, number, short } from "./pure/numbers.js";
import { plot } from "./pure/plot.js";
import { brackets, jitter, outcome, OUTCOMES, rungTable } from "./pure/rungs.js";
import { extent } from "./pure/scales.js";
import { picking } from "./pure/selection.js";

const REACH_PX = 12;
const WIDE = 0.62;

/** Symbol and colour of what became of a trial. */
const looks = (theme) => ({
  promoted: { symbol: "triangle", text: "▲", color: theme.good, words: "promoted" },
  stopped: { symbol: CROSS, text: "×", color: theme.bad, words: "stopped by the scheduler" },
  waiting: { symbol: "emptyCircle", text: "○", color: theme.palette[0], words: "not decided yet" },
  ended: { symbol: "diamond", text: "◆", color: theme.dim, words: "ended for another reason" },
});

export function Rungs({ store, facts, selection, onSelect, visits, view, onView, height = 340 }) {
  useVersion(store);
  const hovered = useHovered(store);
  const theme = useTheme();
  const statusOf = (id) => store.value(id, "status");
  const all = useMemo(() => visits.map((visit) => ({ ...visit, value: number(visit.value), cutoff: number(visit.cutoff) })), [visits]);
  const choices = brackets(all);
  const bracket = choices.includes(Number(view.bracket)) && view.bracket !== undefined ? Number(view.bracket) : choices[0];
  const logY = view.rlog === "1";
  const own = useMemo(() => all.filter((visit) => (visit.bracket ?? 0) === bracket), [all, bracket]);
  const rungs = rungTable(own, statusOf);
  const scene = useCallback(
    (size, theme) => picture({ store, facts, own, rungs, statusOf, logY, selection, size, theme }),
    [own, logY, selection, store, facts.metric],
  );
  const nameless = own.filter(({ value }) => !isFinite(value)).length;
  const title = facts.metric || "value";
  return html`
    <div class="chart-controls">
      ${choices.length > 1 && html`<${Select} label="Bracket" value=${String(bracket)} options=${choices.map((one) => [String(one), String(one)])} onChange=${(value) => onView({ bracket: value })} />`}
      <${Check} label="Log y" value=${logY} onChange=${(on) => onView({ rlog: on ? "1" : "" })} />
    </div>
    <${Chart} name="Rungs" scene=${scene} height=${height} hovered=${hovered} onHover=${(id) => store.hover(id)}
      onPick=${picking(selection, onSelect)}
      label=${`Rungs${choices.length > 1 ? ` of bracket ${bracket}` : ""}: ${rungs.map((rung) => `at ${short(rung.milestone)}, ${rung.promoted} of ${rung.reached} promoted`).join("; ")}.`}
      table=${() => visitTable(own, statusOf, title)}
      note=${`A trial has one symbol in each rung that it reached. The thick line is the cutoff of the newest decision.${nameless > 0 ? ` ${counted(nameless, "visit")} without a value.` : ""}`} />
    <ul class="chart-symbols">${OUTCOMES.map((name) => html`<li key=${name}><span class="chart-unseen">Symbol</span><${Key} look=${looks(theme)[name]} /></li>`)}</ul>
    <div class="chart-scroll" tabindex="0" role="region" aria-label="Trials by rung"><table class="chart-small">
      <caption class="chart-unseen">Trials by rung</caption>
      <thead><tr>${["Bracket", "Rung at", "Reached", "Promoted", "Stopped", "Not decided", "Ended otherwise", `Cutoff (${title})`].map((name) => html`<th key=${name} scope="col">${name}</th>`)}</tr></thead>
      <tbody>${rungTable(all, statusOf).map(
        (rung) => html`<tr key=${`${rung.bracket}/${rung.milestone}`}>
        <td>${rung.bracket}</td><td>${short(rung.milestone)}</td><td>${rung.reached}</td><td>${rung.promoted}</td><td>${rung.stopped}</td><td>${rung.waiting}</td><td>${rung.ended}</td><td>${short(rung.cutoff)}</td></tr>`,
      )}</tbody>
    </table></div>`;
}

const Key = ({ look }) =>
  html`<svg width="14" height="14" viewBox="-7 -7 14 14" aria-hidden="true"><text x="0" y="5" text-anchor="middle" font-size="14" fill=${look.color}>${look.text}</text></svg><span>${look.words}</span>`;

function picture({ store, facts, own, rungs, statusOf, logY, selection, size, theme }) {
  const milestones = rungs.map(({ milestone }) => milestone);
  const names = milestones.map((milestone) => short(milestone));
  const cutoffs = rungs.map(({ cutoff }) => cutoff);
  const range = extent([...own.map(({ value }) => value), ...cutoffs], logY);
  const place = plot({
    size,
    theme,
    x: { kind: "category", categories: names, title: "rung (iterations, or the scheduler's time_attr)" },
    y: { kind: "number", range, log: logY, title: `${facts.metric || "value"} at the rung${logY ? " (log)" : ""}` },
  });
  const spot = ({ value, milestone, trial_id: id }) => {
    if (!isFinite(value) || (logY && value <= 0)) return null;
    return [milestones.indexOf(milestone) + jitter(store.position(id) + 1) * WIDE, value];
  };
  const spots = own.map(spot);
  const pixels = spots.map((one) => one && [place.x.pixel(one[0]), place.y.pixel(one[1])]);
  const look = looks(theme);
  const series = OUTCOMES.map((name) => ({
    type: "scatter",
    silent: true,
    symbol: look[name].symbol,
    symbolSize: own.length > 500 ? 7 : 10,
    itemStyle: { color: look[name].color, opacity: 0.9 },
    data: own.flatMap((visit, at) => {
      if (spots[at] === null || outcome(visit, statusOf(visit.trial_id)) !== name) return [];
      const isOff = selection.size > 0 && !selection.has(visit.trial_id);
      return [
        { value: [spots[at][0], place.forward.y(spots[at][1])], itemStyle: isOff ? { color: look[name].color, opacity: 0.25 } : undefined },
      ];
    }),
  }));
  const lines = rungs.flatMap(({ cutoff }, at) =>
    isFinite(cutoff) && !(logY && cutoff <= 0) ? [cutoffLine(at, cutoff, place, theme)] : [],
  );
  return {
    option: { grid: place.grid, xAxis: place.xAxis, yAxis: place.yAxis, series: [...lines, ...series] },
    pick(px, py) {
      const at = nearestPoint(pixels, px, py, REACH_PX);
      if (at < 0) return null;
      const visit = own[at];
      const words = look[outcome(visit, statusOf(visit.trial_id))].words;
      return {
        id: visit.trial_id,
        tip: tipOf(nameOf(store, visit.trial_id), [
          [`rung ${short(visit.milestone)}`, words],
          [facts.metric || "value", short(visit.value)],
          isFinite(visit.cutoff) && ["cutoff then", short(visit.cutoff)],
          ["at", moment(visit.at)],
        ]),
      };
    },
    overlay(hovered) {
      const mine = own
        .flatMap(({ trial_id: id, milestone }, at) => (id === hovered && pixels[at] ? [[milestone, pixels[at]]] : []))
        .sort((a, b) => a[0] - b[0]);
      if (mine.length === 0) return null;
      return html`<polyline points=${mine.map(([, pixel]) => pixel.join(",")).join(" ")} fill="none" stroke=${theme.text} stroke-width="2" />
        ${mine.map(([key, [x, y]]) => html`<circle key=${key} cx=${x} cy=${y} r="8" fill="none" stroke=${theme.text} stroke-width="2" />`)}`;
    },
  };
}

const cutoffLine = (at, cutoff, place, theme) => ({
  type: "line",
  silent: true,
  showSymbol: false,
  z: 1,
  data: [at - 0.42, at + 0.42].map((x) => [x, place.forward.y(cutoff)]),
  lineStyle: { color: theme.text, width: 3, opacity: 0.75 },
});

function visitTable(own, statusOf, title) {
  const rows = own.map((visit) => [
    visit.trial_id,
    visit.milestone,
    visit.bracket ?? 0,
    visit.value,
    visit.cutoff,
    outcome(visit, statusOf(visit.trial_id)),
    moment(visit.at),
  ]);
  return { columns: ["trial", "rung", "bracket", title, "cutoff then", "outcome", "at"], rows };
}
