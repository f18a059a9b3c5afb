// What the scheduler did: the rungs of ASHA and HyperBand, or the lineage of population-based training.

import { html } from "../../vendor/htm-preact.module.js";
import { Nothing } from "./controls.js";
import { useLoaded, useVersion } from "./follow.js";
import { Lineage } from "./lineage.js";
import { Rungs } from "./rungs.js";

export function Scheduler(props) {
  const { store, facts, api } = props;
  // Decisions come with reports: ask again when there are new ones, at most every 5 s.
  const version = useVersion(store, 5000);
  const { value, error } = useLoaded(() => api.scheduler(facts.key), [api, facts.key, version]);
  if (value === null) return html`<${Nothing}>${error ?? "Reading what the scheduler did…"}<//>`;
  const { visits = [], takeovers = [] } = value;
  if (visits.length === 0 && takeovers.length === 0) return html`<${Nothing}>${reason(value.scheduler || facts.scheduler, facts)}<//>`;
  return html`
    ${facts.scheduler_line && html`<p class="chart-note">${facts.scheduler_line}</p>`}
    ${visits.length > 0 && html`<${Rungs} ...${props} visits=${visits} />`}
    ${takeovers.length > 0 && html`<${Lineage} ...${props} takeovers=${takeovers} />`}`;
}

function reason(scheduler, facts) {
  const name = scheduler.split(".").at(-1);
  if (name === "" || name === "FIFOScheduler") {
    return "This experiment has no scheduler that stops trials early: each one runs until its own end. To use one, pass for instance ASHAScheduler to TuneConfig(scheduler=).";
  }
  if (/PopulationBased|PB2/.test(name)) return `${name} has made no takeover yet: no trial has continued from another one's checkpoint.`;
  if (/HyperBand|ASHA|BOHB/i.test(name)) return `No trial has reached the first rung of ${name} yet${facts.state === "live" ? ". It will show here" : ""}.`;
  return `${name} has made no decision that can be shown here: it has neither rungs nor takeovers.`;
}
