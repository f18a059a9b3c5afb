// Links to trials.

import { hashOf } from "./route.js";
import { html } from "./ui.js";

export const trialHash = (facts, id) => hashOf({ page: "trial", key: facts.key, trial: id });

/** A trial's id; a narrow page leaves out what all ids begin with. */
export function TrialId({ store, id }) {
  const start = store?.sharedStart ?? "";
  const isShort = start !== "" && id.startsWith(start) && id !== start;
  return isShort ? html`<span class="short-id" title=${id}><span class="shared">${start}</span>${id.slice(start.length)}</span>` : id;
}

/** `#7`, or the id if the number is not known. */
export function TrialLink({ store, facts, id, long = false }) {
  const index = store?.value(id, "index") ?? null;
  const label = index === null ? id : `#${index}`;
  const hover = store && { onMouseEnter: () => store.hover(id), onMouseLeave: () => store.hover(null) };
  return html`<a href=${trialHash(facts, id)} title=${id} ...${hover}>${label}${long && index !== null && html` <span class="mono"><${TrialId} store=${store} id=${id} /></span>`}</a>`;
}
