// The names of few curves under their chart, with colour, dash and the newest value.

import { html } from "../../vendor/htm-preact.module.js";
import { MANY } from "./curve_scenes.js";
import { useVersion } from "./follow.js";
import { strokeOf, useTheme } from "./theme.js";
import { nameOf } from "./pure/dimensions.js";
import { number } from "../format.js";

/** The values and the best trial are the store's, as everywhere on the page: a picture is drawn less often. */
export function Legend({ curves, slots, store, hovered, facts, metric, onPick }) {
  useVersion(store, 0);
  const best = store.leader(facts);
  const theme = useTheme();
  if (curves.length > MANY)
    return html`<p class="chart-note">${curves.length.toLocaleString("en")} curves: point at one to see its name.</p>`;
  return html`<ul class="chart-legend">
    ${curves.map(
      ({ id, raw }) => html`<li key=${id}>
      <button type="button" class=${hovered === id ? "chart-key chart-hovered" : "chart-key"} onClick=${(event) => onPick(id, event)}
        onPointerEnter=${() => store.hover(id)} onPointerLeave=${() => store.hover(null)} onFocus=${() => store.hover(id)} onBlur=${() => store.hover(null)}>
        <${Dash} ...${strokeOf(theme, slots.get(id))} /> <span
          class="chart-name">${nameOf(store, id)}</span>${id === best && html` <span class="chart-best" title="best trial">★<span class="chart-unseen"> best</span></span>`}
        <span class="chart-value">${shown(store.value(id, `metrics/${metric}`) ?? raw.findLast((value) => value !== null))}</span>
      </button></li>`,
    )}
  </ul>`;
}

const shown = (value) => (typeof value === "number" ? number(value) : "–");

const Dash = ({ color, type }) =>
  html`<svg width="28" height="8" aria-hidden="true"><line x1="0" y1="4" x2="28" y2="4" stroke=${color} stroke-width="3" stroke-dasharray=${type === "solid" ? "" : type.join(" ")} /></svg>`;
