// Time: a trial's attempts, how many trials ran at once, and what happened to the experiment.

import { html, useCallback, useMemo } from "../../vendor/htm-preact.module.js";
import { Chart, tipOf } from "./base.js";
import { Nothing } from "./controls.js";
import { useVersion } from "./follow.js";
import { laneScene } from "./lane_scene.js";
import { concurrency, estimated, fewer, until } from "./pure/intervals.js";
import { nearestPoint } from "./pure/nearest.js";
import { counted, duration, isFinite, moment } from "./pure/numbers.js";
import { plot } from "./pure/plot.js";
import { extent } from "./pure/scales.js";
import { lowerBound } from "./pure/thin.js";

const LANE_PX = 46;
const MOST_STEPS = 1000;
const REACH_PX = 12;

/** The sign, the colour of the theme's palette, and the words of why an attempt ended. */
const ENDS = {
  running: ["▶", 0, "running"],
  finished: ["✓", 2, "finished"],
  pruned: ["▼", 4, "pruned"],
  ...Object.fromEntries(["stopped", "stopper", "budget", "user"].map((word) => [word, ["■", 4, word]])),
  paused: ["‖", 3, "paused"],
  failed: ["✕", "bad", "failed"],
  lost: ["?", "bad", "lost"],
  interrupted: ["⊘", "dim", "interrupted"],
  preempted: ["⇄", "dim", "preempted"],
};

/** The attempts of one trial: `trial` is the answer of api/e/KEY/t/ID. */
export function Attempts({ trial, facts = {}, now = null }) {
  const attempts = trial.attempts ?? [];
  const end = now ?? Math.max(facts.now ?? 0, trial.reported_at ?? 0);
  const scene = useCallback((size, theme) => attemptScene(attempts, end, size, theme), [attempts, end]);
  if (attempts.length === 0) return html`<${Nothing}>This trial has not started yet.<//>`;
  const rows = () =>
    attempts.map((one) => [
      one.attempt,
      moment(one.began_at),
      moment(one.ended_at),
      one.from_iteration,
      one.to_iteration,
      (one.nodes ?? []).join(", ") || one.hostname,
      wordsOf(one),
    ]);
  return html`<${Chart} name="Attempts" scene=${scene} height=${60 + LANE_PX * attempts.length}
    label=${`${counted(attempts.length, "attempt")}: ${attempts.map((one) => `${one.attempt} ${wordsOf(one)}`).join("; ")}.`}
    table=${() => ({ columns: ["attempt", "began", "ended", "from iteration", "to iteration", "node", "end"], rows: rows() })} />`;
}

function wordsOf({ end, why, error }) {
  const reason = error?.headline || why;
  const words = ENDS[end]?.[2] ?? end;
  if (!reason) return words;
  return reason.includes(words) ? reason : `${words}: ${reason}`;
}

function attemptScene(attempts, now, size, theme) {
  const color = (end) => {
    const name = ENDS[end]?.[1] ?? "dim";
    return typeof name === "number" ? theme.palette[name] : theme[name];
  };
  const rows = attempts.map((one) => ({
    id: null,
    label: `attempt ${one.attempt}`,
    bars: [
      {
        from: one.began_at,
        to: one.ended_at ?? Math.max(now, one.began_at),
        color: color(one.end),
        text: `${ENDS[one.end]?.[0] ?? ""} ${wordsOf(one)}`,
        heading: `Attempt ${one.attempt} ${wordsOf(one)}`,
        lines: [
          ["began", moment(one.began_at)],
          one.ended_at !== null && ["ended", moment(one.ended_at)],
          ["lasted", duration((one.ended_at ?? now) - one.began_at)],
          ["iterations", `${one.from_iteration} to ${one.to_iteration ?? "–"}`],
          one.node && ["node", one.node],
          one.hostname && one.hostname !== one.node && ["host", one.hostname],
        ],
      },
    ],
  }));
  const range = extent(rows.flatMap(({ bars }) => [bars[0].from, bars[0].to])) ?? [0, 1];
  return laneScene({ rows, x: { kind: "time", range, title: "wall clock (local time)" }, size, theme, thick: 14, textPx: 16 }).scene;
}

/** The groups of the experiment's events: sign and what they have in common. */
const KINDS = {
  experiment: ["◆", "began, ended, restored", ["began", "restored", "ended", "interrupted"]],
  nodes: ["■", "nodes", ["node_joined", "node_left"]],
  orders: ["●", "orders of a person", ["limit", "added", "note", "stopped", "paused", "resumed", "held"]],
  other: ["▲", "stoppers, budgets and the rest", []],
};
const groupOf = (kind) => Object.keys(KINDS).find((group) => KINDS[group][2].includes(kind)) ?? "other";

/** Up to when there is something to show. */
const endOf = (facts) => (facts.state === "live" ? facts.now : (facts.updated_at ?? facts.now));

/** How many trials ran at each moment, with the events of the experiment as marks. */
export function Workers({ store, facts, height = 260 }) {
  const version = useVersion(store, 5000);
  const isExact = Array.isArray(facts.concurrency) && facts.concurrency.length > 0;
  const steps = useMemo(() => {
    const found = isExact ? facts.concurrency : concurrency(estimated(store.columns, endOf(facts)));
    return until(fewer(found, MOST_STEPS), endOf(facts));
  }, [store, version, facts]);
  const events = facts.timeline ?? [];
  const scene = useCallback((size, theme) => workerScene(steps, events, facts, size, theme), [steps, facts]);
  if (steps.length === 0) return html`<${Nothing}>No trial has run yet.<//>`;
  const most = Math.max(...steps.map(([, running]) => running));
  return html`
    <${Chart} name="Trials at once" scene=${scene} height=${height}
      label=${`At most ${counted(most, "trial")} ran at once. ${counted(events.length, "event")} marked.`}
      note=${`${isExact ? "" : "Estimated from training times and last reports: pauses and lost time are not seen. "}The marks above are events of the experiment: point at one to read it.`}
      table=${() => ({ columns: ["at", "trials that run"], rows: steps.map(([at, running]) => [moment(at), running]) })} />
    <${Signs} events=${events} />`;
}

function Signs({ events }) {
  const groups = [...new Set(events.map(({ kind }) => groupOf(kind)))];
  return html`<ul class="chart-symbols">${groups.map((group) => html`<li key=${group}><span aria-hidden="true">${KINDS[group][0]}</span><span>${KINDS[group][1]}</span></li>`)}</ul>`;
}

function workerScene(steps, events, facts, size, theme) {
  const times = [...steps.map(([at]) => at), ...events.map(({ at }) => at), endOf(facts)].filter(isFinite);
  const most = Math.max(...steps.map(([, running]) => running), 1);
  const place = plot({
    size,
    theme,
    top: 52,
    x: { kind: "time", range: extent(times), title: "wall clock (local time)" },
    y: { kind: "number", range: [0, most * 1.08], exact: true, title: "" },
  });
  const marks = events.map((event) => ({ event, pixel: [place.x.pixel(event.at), 38] }));
  const limit = isFinite(facts.max_concurrent) && facts.max_concurrent <= place.ranges.y[1] ? facts.max_concurrent : null;
  return {
    option: {
      grid: place.grid,
      xAxis: place.xAxis,
      yAxis: place.yAxis,
      graphic: {
        elements: [
          ...marks.flatMap(({ event, pixel }) => eventMark(event, pixel, place.rect, theme)),
          {
            type: "text",
            silent: true,
            x: 6,
            y: 8,
            style: {
              text: limit === null ? "trials that run" : `trials that run (dashed: max_concurrent_trials, ${limit})`,
              fill: theme.text,
              font: `12px ${theme.font}`,
            },
          },
        ],
      },
      series: [
        {
          type: "line",
          silent: true,
          step: "end",
          showSymbol: false,
          data: steps,
          lineStyle: { color: theme.palette[0], width: 2 },
          areaStyle: { color: theme.palette[0], opacity: 0.2 },
        },
        ...(limit === null
          ? []
          : [
              {
                type: "line",
                silent: true,
                showSymbol: false,
                data: place.ranges.x.map((x) => [x, limit]),
                lineStyle: { color: theme.dim, type: "dashed", width: 1.5 },
              },
            ]),
      ],
    },
    pick(px, py) {
      const at = nearestPoint(
        marks.map(({ pixel }) => pixel),
        px,
        py,
        REACH_PX,
      );
      if (at >= 0) return { id: null, tip: tipOf(moment(marks[at].event.at), [["", marks[at].event.text]]) };
      if (py < place.rect.top || py > place.rect.bottom || px < place.rect.left) return null;
      const time = place.x.value(px);
      const index =
        lowerBound(
          steps.map(([when]) => when),
          time,
        ) - 1;
      return index < 0 ? null : { id: null, tip: tipOf(moment(time), [["trials that run", steps[index][1]]]) };
    },
  };
}

function eventMark({ kind }, [x, y], rect, theme) {
  const [sign] = KINDS[groupOf(kind)];
  return [
    {
      type: "line",
      silent: true,
      z: 1,
      shape: { x1: x, x2: x, y1: rect.top - 4, y2: rect.bottom },
      style: { stroke: theme.dim, lineWidth: 1, lineDash: [3, 3], opacity: 0.7 },
    },
    {
      type: "text",
      silent: true,
      z: 5,
      x,
      y,
      style: { text: sign, fill: theme.text, font: `15px ${theme.font}`, align: "center", verticalAlign: "middle" },
    },
  ];
}
