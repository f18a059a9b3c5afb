// The charts of an experiment, one at a time. All share the selection and the hovered trial with the table.

import { Sight, useSight } from "../sight.js";
import { html, Chart, Tabs, useRef } from "../ui.js";

const CHARTS = [
  { id: "curves", label: "Curves", part: "Curves" },
  { id: "parallel", label: "Parallel coordinates", part: "Parallel" },
  { id: "scatter", label: "Scatter", part: "Scatter" },
  { id: "importance", label: "Importance", part: "Importance" },
  { id: "pareto", label: "Pareto front", part: "Pareto", isFor: (facts) => Object.keys(facts.goals ?? {}).length > 1 },
  { id: "timeline", label: "Timeline", part: "Workers" },
  { id: "scheduler", label: "Scheduler", part: "Scheduler", isFor: (facts) => Boolean(facts.scheduler) },
];

export function ChartTabs({ view, onView, facts, ...props }) {
  const tabs = CHARTS.filter(({ isFor }) => isFor === undefined || isFor(facts));
  const chosen = tabs.find(({ id }) => id === view.tab) ?? tabs[0];
  const section = useRef();
  const sight = useSight(section);
  return html`<section class="card" id="charts" aria-label="Charts" ref=${section}>
    <${Tabs} label="Charts" tabs=${tabs} chosen=${chosen.id} onChoose=${(tab) => onView({ tab })}>
      <${Sight.Provider} value=${sight}>
        <${Chart} key=${chosen.id} file=${chosen.id} part=${chosen.part} view=${view} onView=${onView} facts=${facts} ...${props} />
      <//>
    <//>
  </section>`;
}
