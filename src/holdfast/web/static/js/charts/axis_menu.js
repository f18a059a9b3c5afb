// Chooses the axes of parallel coordinates and their order.

import { html } from "../../vendor/htm-preact.module.js";
import { Button } from "./controls.js";
import { labelOf } from "./pure/dimensions.js";

export function AxisMenu({ keys, chosen, onChange }) {
  const moved = (key, by) => {
    const next = chosen.filter((one) => one !== key);
    next.splice(Math.max(chosen.indexOf(key) + by, 0), 0, key);
    onChange(next);
  };
  const rest = keys.filter((key) => !chosen.includes(key));
  return html`<details class="chart-menu">
    <summary>Axes (${chosen.length} of ${keys.length})</summary>
    <div><ul>
      ${chosen.map((key, at) => html`<li key=${key}>
        <label class="chart-control"><input type="checkbox" checked disabled=${chosen.length <= 2} onChange=${() => onChange(chosen.filter((one) => one !== key))} /> ${labelOf(key)}</label>
        <${Button} text="↑" label=${`Move ${labelOf(key)} forward`} disabled=${at === 0} onClick=${() => moved(key, -1)} />
        <${Button} text="↓" label=${`Move ${labelOf(key)} back`} disabled=${at === chosen.length - 1} onClick=${() => moved(key, 1)} />
      </li>`)}
      ${rest.map((key) => html`<li key=${key}><label class="chart-control"><input type="checkbox" checked=${false} onChange=${() => onChange([...chosen, key])} /> ${labelOf(key)}</label></li>`)}
    </ul></div>
  </details>`;
}
