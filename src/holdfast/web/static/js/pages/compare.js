// Trials or experiments next to each other.

import { html } from "../ui.js";

export function ComparePage() {
  return html`<h1>Compare</h1>`;
}
