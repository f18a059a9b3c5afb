// Links to trials.

import { hashOf } from "./route.js";
import { html } from "./ui.js";

export const trialHash = (facts, id) => hashOf({ page: "trial", key: facts.key, trial: id });

/** `#7`, or the id if the number is not known. */
export function TrialLink({ store, facts, id, long = false }) {
  const index = store?.value(id, "index") ?? null;
  const label = index === null ? id : `#${index}`;
  const hover = store && { onMouseEnter: () => store.hover(id), onMouseLeave: () => store.hover(null) };
  return html`<a href=${trialHash(facts, id)} title=${id} ...${hover}>${label}${long && index !== null && html` <span class="mono">${id}</span>`}</a>`;
}
