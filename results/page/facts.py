"""The facts about an experiment: what is true of all its trials together."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from holdfast.experiment.progress.scheduler_facts import rung_counts, takeover_facts
from holdfast.experiment.progress.summarizer import Summarizer
from holdfast.experiment.progress.summary import RunFacts, Summary
from holdfast.experiment.progress.wording import cause, short_of_room, user_frame
from holdfast.experiment.records.journal import wall_time
from holdfast.experiment.records.view import ExperimentView, Standing
from holdfast.results.overview import ending_of, facts_as_json, node_list
from holdfast.results.page.entries import Entries, json_value, shortened
from holdfast.results.page.history import failures_of
from holdfast.results.recorded_space import read_domain
from holdfast.runtime.launcher import short_cause
from holdfast.scheduler.launching import search_text
from holdfast.scheduler.machine import Machine
from holdfast.text.trials import unread_text
from holdfast.text.values import counted
from holdfast.trial.errors import Failure
from holdfast.trial.space import Categorical, Float, Integer
from holdfast.trial.trial import Status
from holdfast.trial.values import key_name

_SHOWN_IDS: Final = 100
_MOST_CAUSES: Final = 100
_MOST_NOTICES: Final = 50
_HOUR_S: Final = 3600.0
_LONGEST_SPACE: Final = 10_000
_LONGEST_KIND: Final = 40


def total_of(machine: Machine) -> int | None:
    """The number of trials that there will be; None if the records do not say."""
    left = machine.not_created
    return None if left is None else len(machine.trials) + left


def summary_of(summarizer: Summarizer, experiment: ExperimentView, *, now: float) -> Summary:
    """The numbers of the terminal, for the machine as it is."""
    here = experiment.layout
    facts = RunFacts(
        name=experiment.name,
        path=experiment.shown,
        local_path="" if here is None else str(here.root),
        total=total_of(experiment.machine),
    )
    return summarizer.summarize(facts=facts, now=now)


def _from_anywhere(shown: str) -> str:
    """The path as a reader can type it, who is seldom in the directory of the server."""
    return shown if "://" in shown else os.path.abspath(shown)


def facts_of(
    experiment: ExperimentView,
    entries: Entries,
    summary: Summary,
    *,
    now: float,
    reports_per_s: float | None,
    failures: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """The answer of api/e/KEY, but for its key, version, steering and timeline.

    `reports_per_s` is None if that is not known yet.
    """
    machine, spec = experiment.machine, experiment.machine.spec
    found = entries.statuses
    standing = Standing(
        state=experiment.condition(now),
        counts={one.value: found[one.value] for one in Status if found[one.value]},
        stop_reasons={name: count for name, count in entries.stop_reasons.items() if count},
        not_created=machine.not_created,
    )
    trials = list(machine.trials.values())
    taken = [trial for trial in trials if trial.takeovers]  # the others' configs are not spread
    facts = facts_as_json(experiment, standing)
    return {
        **facts,
        "path": _from_anywhere(experiment.shown),
        "tags": json_value(facts["tags"]),
        "confirmed": json_value(facts["confirmed"]),  # an interval of huge values is infinite
        "total": total_of(machine),
        "num_samples": spec.num_samples,
        "max_concurrent": spec.max_concurrent,
        "progress": _progress(machine, summary, standing.is_live, reports_per_s),
        "notices": [shortened(text) for text in _notices(experiment, summary)[:_MOST_NOTICES]],
        "storage_age_s": None if experiment.heard_at is None else now - experiment.heard_at,
        "scheduler_line": summary.scheduler,
        "outlook": summary.outlook,
        "confirmation": summary.best.confirmation if summary.best else "",
        "search": str(spec.options.get("search") or ""),
        "rungs": [asdict(rung) for rung in rung_counts(trials)],
        "takeovers": json_value([asdict(one) for one in takeover_facts(taken)]),
        "failures": failures,
        "nodes": _nodes(experiment, now),
        "varied": entries.varied(spec.whole_space),
        "metrics": entries.numeric_metrics(),
        "space": space_of(spec.whole_space),
        "queued_configs": [json_value(one.config) for one in machine.configs[:_SHOWN_IDS]],
    }


def _notices(experiment: ExperimentView, summary: Summary) -> list[str]:
    return [*filter(None, [unread_text(summary.unread)]), *experiment.notices]


def _progress(
    machine: Machine, summary: Summary, is_live: bool, reports_per_s: float | None
) -> dict[str, Any]:
    ended = sum(summary.counts.get(status, 0) for status in (Status.TERMINATED, Status.ERROR))
    active_s = summary.elapsed_s if is_live else machine.active_s
    running = sum(n for status, n in summary.counts.items() if status.has_worker)
    return {
        "share": summary.share,
        "left_s": summary.left_s if is_live else None,
        "elapsed_s": active_s,
        "reports_per_s": reports_per_s if is_live else None,
        "trials_per_hour": ended * _HOUR_S / active_s if ended and active_s > 0 else None,
        "running": running if is_live else 0,
        "waiting_text": waiting_text(machine, running, wall_time()) if is_live else "",
    }


def waiting_text(machine: Machine, running: int, now: float) -> str:
    """The reason why workers of a live run are free or its trials wait; "" for none."""
    if text := search_text(machine, now):
        return f"{text}."
    if machine.finished:
        return ""
    if machine.ending is not None:
        return f"The run is ending: {ending_of(machine)}."
    cluster = machine.cluster
    if machine.waits_for_person:
        paused = counted(len(machine.held), "trial is", "trials are")
        return f"{paused} paused, and nothing else is left: resume or stop them."
    if cluster and not cluster.nodes:
        return "The run waits for its first node."
    if (machine.has_queue or not machine.search_ended) and (
        short := short_of_room(machine, total_of(machine))
    ):
        return f"{short}."
    return "The trials wait for free resources." if machine.has_queue and not running else ""


class Causes:
    """Groups failures by their cause, which it looks up once for each: a traceback takes 30 us."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], tuple[str, str]] = {}

    def plain(self, machine: Machine) -> list[dict[str, Any]]:
        """The causes, most frequent first: of trials that failed for good, and (not `final`) of
        those that ran again, or will."""
        found: dict[str, dict[tuple[str, str], tuple[bool, Failure]]] = {}
        several = [
            (one.ended_at, trial.spec.index, trial, one.attempt, failure)
            for trial in machine.trials.values()
            for one, failure in failures_of(trial)
        ]
        for _, _, trial, attempt, failure in sorted(several, key=lambda one: one[:2]):
            known = found.setdefault(trial.trial_id, {})
            final = trial.status is Status.ERROR and trial.attempt == attempt
            key = self._cause(trial.trial_id, attempt, failure)
            if final or key not in known:
                known[key] = final, failure
        groups: dict[tuple[tuple[str, str], bool], list[tuple[str, Failure]]] = {}
        for trial_id, causes in found.items():
            for key, (final, failure) in causes.items():
                groups.setdefault((key, final), []).append((trial_id, failure))
        by_size = sorted(groups.items(), key=lambda one: (len(one[1]), one[0][1]), reverse=True)
        return [
            {
                "trial_id": group[0][0],
                "trials": len(group),
                **failure_plain(group[0][1]),
                "nodes": _nodes_of(group),
                "final": final,
                "trial_ids": [trial_id for trial_id, _ in group[:_SHOWN_IDS]],
            }
            for (_, final), group in by_size[:_MOST_CAUSES]
        ]

    def _cause(self, trial_id: str, attempt: int, failure: Failure) -> tuple[str, str]:
        key = self._known.get((trial_id, attempt))
        if key is None:
            key = cause(failure.headline, user_frame(failure))
            self._known[trial_id, attempt] = key
        return key


def _nodes_of(group: Sequence[tuple[str, Failure]]) -> dict[str, int]:
    """The number of these failed trials on each node, the most first."""
    found = Counter(failure.node for _, failure in group if failure.node)
    return dict(found.most_common(_SHOWN_IDS))


def failure_plain(error: Failure) -> dict[str, Any]:
    return {
        "headline": shortened(error.headline, 1_000),
        "kind": error.kind,
        "where": user_frame(error),
        "node": error.node,
    }


def _nodes(experiment: ExperimentView, now: float) -> list[dict[str, Any]] | None:
    if not experiment.machine.cluster:
        return None
    nodes = node_list(experiment, now=now).nodes
    return [{**asdict(node), "cause_short": short_cause(node.cause)} for node in nodes]


def space_of(parts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The search space from its description: what a person needs to try a config."""
    return [_parameter(part) for part in parts if part["varied"]]


def _parameter(part: Mapping[str, Any]) -> dict[str, Any]:
    text = str(part["text"])
    kind = text.partition("(")[0][:_LONGEST_KIND]
    domain = read_domain(text) if len(text) <= _LONGEST_SPACE else None
    bounds = domain if isinstance(domain, (Float, Integer)) else None
    return {
        "name": key_name(tuple(part["path"])),
        "kind": kind,
        "text": shortened(text, 1_000),
        "low": None if bounds is None else bounds.lower,
        "high": None if bounds is None else bounds.upper,
        "log": "log" in kind,
        "choices": _choices(domain) if isinstance(domain, Categorical) else [],
    }


def _choices(domain: Categorical) -> list[Any]:
    """The values of `choice([16, 32])`, if all are numbers, texts, True, False or None."""
    simple = (int, float, str, bool, type(None))
    values = domain.categories
    is_simple = all(type(value) in simple for value in values)
    return [json_value(value) for value in values[:_SHOWN_IDS]] if is_simple else []
