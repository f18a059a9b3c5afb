// Labelled controls of charts.

import { html } from "../../vendor/htm-preact.module.js";

/** `options` is [[value, text], ...]. */
export const Select = ({ label, value, options, onChange }) => html`
  <label class="chart-control"><span>${label}</span>
    <select value=${value} onChange=${(event) => onChange(event.target.value)}>
      ${options.map(([key, text]) => html`<option key=${key} value=${key} selected=${key === value}>${text}</option>`)}
    </select>
  </label>`;

export const Check = ({ label, value, onChange, title }) => html`
  <label class="chart-control" title=${title}><input type="checkbox" checked=${value} onChange=${(event) => onChange(event.target.checked)} /><span>${label}</span></label>`;

export const Slider = ({ label, value, max = 100, onChange }) => html`
  <label class="chart-control"><span>${label}</span>
    <input type="range" min="0" max=${max} step="1" value=${value} onInput=${(event) => onChange(Number(event.target.value))} />
  </label>`;

export const Button = ({ text, label, onClick, pressed, disabled }) => html`
  <button type="button" class="chart-button" aria-label=${label} aria-pressed=${pressed} disabled=${disabled} onClick=${onClick}>${text}</button>`;

/** Clears the selection; hidden where the page shows nothing but the selected trials. */
export const Clear = ({ selection, shown, onClick }) =>
  selection.size > 0 && !shown?.every((id) => selection.has(id)) ? html`<${Button} text="Clear selection" onClick=${onClick} />` : null;

/** A sentence in place of a chart. */
export const Nothing = ({ children }) => html`<p class="chart-nothing">${children}</p>`;
