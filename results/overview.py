"""`holdfast show` and `holdfast nodes`: the facts about an experiment, its trials and nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field, replace
from enum import StrEnum
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.layout import ERROR
from holdfast.experiment.folder.nodes_file import NodeBeat, read_news
from holdfast.experiment.progress.scheduler_facts import rung_counts, takeover_facts
from holdfast.experiment.progress.wording import cause, user_frame
from holdfast.experiment.records.rows import AUTOMATIC
from holdfast.experiment.records.view import Condition, ExperimentView, Standing
from holdfast.results.logs import log_names, place_of
from holdfast.results.ranking import params_of, varied_names
from holdfast.results.result import Result
from holdfast.results.result_grid import front_of
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.nodes.cluster import FormerNode, Node
from holdfast.scheduler.placement import Placement
from holdfast.text.trials import stop_reason, stop_sentence
from holdfast.trial.best import confirmed, leader, value_of
from holdfast.trial.errors import Failure, on_node
from holdfast.trial.resources import Usage, usage_of_all
from holdfast.trial.trial import Status, Trial
from holdfast.trial.values import readable

RUN_ENDED = "its run has ended"


class NodeState(StrEnum):
    """The state of a node."""

    HERE = "here"
    LEAVING = "leaving"  # it has announced its end: no trial starts there
    LEFT = "left"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedNode:
    """One node; docs/command.md describes the fields."""

    name: str
    kind: str
    hostname: str
    address: str
    resources: Mapping[str, float]
    joined_at: float | None
    heard_at: float | None
    state: NodeState = NodeState.LEFT
    cause: str = ""
    held: Mapping[str, float] = field(default_factory=dict)
    trials: tuple[str, ...] = ()
    left_at: float | None = None
    disk_free_bytes: int | None = None
    is_earlier: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeList:
    """The nodes in the order in which they joined, then those that have left, the newest last.

    `most` is how many there can be, None if there is no limit. `is_cluster` is false if all trials
    run on one machine. `waiting` says which nodes a live run waits for, and where; "" for none.
    """

    name: str
    path: str
    state: Condition
    holder: str
    is_cluster: bool
    most: int | None
    waiting: str
    nodes: tuple[ListedNode, ...]

    @property
    def here(self) -> list[ListedNode]:
        """Those that are there, also if they are leaving."""
        return [node for node in self.nodes if node.state is not NodeState.LEFT]

    @property
    def left(self) -> list[ListedNode]:
        """Those that have left."""
        return [node for node in self.nodes if node.state is NodeState.LEFT]

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def node_list(experiment: ExperimentView, *, now: float) -> NodeList:
    """Reads the records, and the file with the nodes' last beats.

    A run that was killed has no record of the end of its nodes, but their agents end with it.
    """
    machine, condition = experiment.machine, experiment.condition(now)
    cluster = machine.cluster
    former, nodes = dict(cluster.former), cluster.nodes
    if condition is not Condition.LIVE:
        former |= {name: FormerNode(was=node, cause=RUN_ENDED) for name, node in nodes.items()}
        nodes = {}
    news = read_news(experiment.layout or experiment.location)
    beats = news.beats
    here = (_here(name, node, machine.placement, beats.get(name)) for name, node in nodes.items())
    left = (_left(name, node, beats.get(name)) for name, node in former.items())
    most = [kind.most for kind in cluster.offer]
    return NodeList(
        name=experiment.name,
        path=experiment.shown,
        state=condition,
        holder=experiment.holder,
        is_cluster=bool(cluster),
        most=None if None in most or not most else sum(filter(None, most)),
        waiting=news.waiting if condition is Condition.LIVE else "",
        nodes=(*here, *left),
    )


def _here(name: str, node: Node, placement: Placement, beat: NodeBeat | None) -> ListedNode:
    return replace(
        _listed(name, node, beat),
        state=NodeState.LEAVING if node.leaving else NodeState.HERE,
        cause=node.why,
        held=_held(name, placement),
        trials=tuple(trial_id for trial_id, held in placement.holds.items() if held.is_on(name)),
        disk_free_bytes=None if beat is None else beat.disk_free_bytes,
    )


def _left(name: str, node: FormerNode, beat: NodeBeat | None) -> ListedNode:
    return replace(
        _listed(name, node.was, beat),
        cause=node.cause or ("" if node.left_at else RUN_ENDED),
        left_at=node.left_at or None,
        is_earlier=node.is_earlier,
    )


def _listed(name: str, node: Node, beat: NodeBeat | None) -> ListedNode:
    return ListedNode(
        name=name,
        kind=node.kind,
        hostname=node.hostname,
        address=node.address,
        resources=dict(node.resources),
        joined_at=node.joined_at or None,
        heard_at=None if beat is None else beat.at,
    )


def _held(name: str, placement: Placement) -> dict[str, float]:
    """The resources of the node that trials and idle workers hold."""
    total: dict[str, float] = {}
    for held in (*placement.holds.values(), *placement.idle.values()):
        for place in held.places:
            if place.node == name:
                for key, amount in place.amounts.items():
                    total[key] = round(total.get(key, 0) + amount, 4)
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFailure:
    """A trial's last error, and on which `node` and host; `final` is false if the trial is
    retried."""

    headline: str
    kind: str
    node: str
    hostname: str
    where: str
    final: bool
    error_file: str
    logs: tuple[str, ...]

    @property
    def on_node(self) -> str:
        """`on node a`; empty on the controller's machine."""
        return on_node(self.node, self.hostname)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureCause:
    """Failures of one cause: the first trial that failed so, and the number of trials."""

    trial_id: str
    failure: TrialFailure
    trials: int


def ending_of(machine: Machine) -> str:
    """Why the run ended, in the words of who ended it; "" for one that has not."""
    return "" if machine.ending is None else machine.ending.message or machine.ending.reason


def usage_of(machine: Machine) -> Usage | None:
    """What all trials have used; None if it is not known."""
    return usage_of_all([usage for trial in machine.trials.values() for usage in trial.usages])


def facts_as_json(experiment: ExperimentView, standing: Standing) -> dict[str, Any]:
    """The facts about an experiment without its trials, as JSON values; docs/command.md describes
    them. Reads only the records."""
    machine, spec = experiment.machine, experiment.machine.spec
    usage = usage_of(machine)
    return {
        "name": experiment.name,
        "path": experiment.shown,
        "holder": experiment.holder,
        "heard_at": experiment.heard_at,
        "trainable": spec.trainable,
        "metric": spec.metric,
        "mode": spec.mode,
        "goals": dict(spec.goals),
        "pareto_front": list(front_of(experiment)),
        "began_at": experiment.began_at,
        "updated_at": machine.now,
        "active_s": machine.active_s,
        "run": experiment.run,
        "restores": machine.epoch - 1,
        "ending": ending_of(machine),
        "tags": spec.options.get("tags", {}),
        "usage": None if usage is None else asdict(usage),
        "notices": list(experiment.notices),
        "storage": experiment.storage,
        "scheduler": spec.scheduler,
        "choice": spec.options.get("choice", ""),
        "confirm": spec.confirm,
        "confirmed": [
            asdict(one) for one in confirmed(machine.trials.values(), spec.metric, spec.mode)
        ],
        **asdict(standing),
    }


def experiment_as_json(experiment: ExperimentView, *, now: float) -> dict[str, Any]:
    """The facts, the names of the varied parameters, and every trial, as JSON values."""
    machine, spec = experiment.machine, experiment.machine.spec
    trials, standing = list(machine.trials.values()), experiment.standing(now)
    is_live = standing.is_live
    plain = {one.trial_id: trial_as_json(experiment, one, is_live=is_live) for one in trials}
    best = leader(trials, spec.metric, spec.mode)
    return {
        **facts_as_json(experiment, standing),
        "best": None if best is None else plain[best.trial_id],
        "rungs": [asdict(rung) for rung in rung_counts(trials)],
        "takeovers": [asdict(takeover) for takeover in takeover_facts(trials)],
        "varied": varied_names(spec, trials),
        "trials": list(plain.values()),
    }


def trial_as_json(experiment: ExperimentView, trial: Trial, *, is_live: bool) -> dict[str, Any]:
    """One trial as JSON values."""
    spec, settings = trial.spec, experiment.machine.spec
    newest = trial.newest_checkpoint
    return {
        "trial_id": trial.trial_id,
        "index": spec.index,
        "name": spec.name,
        "status": trial.shown_status.value,
        "stop_reason": stop_reason(trial, is_live=is_live),
        "why": stop_sentence(trial, settings.options, is_live=is_live),
        "iteration": trial.iteration,
        "attempt": trial.attempt,
        "node": trial.place.node,
        "nodes": list(trial.place.nodes),
        "failures": trial.setbacks,
        "time_total_s": trial.time_total_s,
        "usage": None if trial.usage is None else asdict(trial.usage),
        "usages": [asdict(usage) for usage in trial.usages],
        "reported_at": trial.reported_at or None,
        "value": value_of(trial, settings.metric),
        "params": params_of(trial),
        "metrics": readable(dict(trial.row)) if trial.row is not None else None,
        "checkpoint": None if newest is None else f"{spec.dirname}/{newest.dirname}",
        "folder": spec.dirname,
        "note": trial.note,
        "unread": trial.unread,
        "is_added": spec.added_by_person,
        "confirms": spec.confirms,
        "is_held": trial.is_held,
        "error": None if trial.error is None else asdict(_failure(experiment, trial, trial.error)),
    }


def row_as_json(trial: Trial, result: Result) -> dict[str, Any]:
    """The fields of `trial_as_json` that differ for a result of a row that is not the newest."""
    row, checkpoint = result.metrics or {}, result.checkpoint
    name = None if checkpoint is None else checkpoint.path.rstrip("/").rpartition("/")[2]
    return {
        "iteration": row.get("training_iteration"),
        "metrics": readable({key: value for key, value in row.items() if key not in AUTOMATIC}),
        "checkpoint": None if name is None else f"{trial.spec.dirname}/{name}",
    }


def failure_causes(experiment: ExperimentView) -> list[FailureCause]:
    """The causes of failed trials, most frequent first, grouped as in the terminal of a run."""
    groups: dict[tuple[str, str], list[tuple[Trial, Failure]]] = {}
    for trial in experiment.machine.trials.values():
        if trial.status is Status.ERROR and trial.error is not None:
            key = cause(trial.error.headline, user_frame(trial.error))
            groups.setdefault(key, []).append((trial, trial.error))
    return [
        FailureCause(
            trial_id=group[0][0].trial_id,
            failure=_failure(experiment, *group[0]),
            trials=len(group),
        )
        for group in sorted(groups.values(), key=len, reverse=True)
    ]


def _failure(experiment: ExperimentView, trial: Trial, error: Failure) -> TrialFailure:
    return TrialFailure(
        headline=error.headline,
        kind=error.kind,
        node=error.node,
        hostname=error.hostname,
        where=user_frame(error),
        final=trial.status.is_final,
        error_file=place_of(experiment, trial, ERROR),
        logs=tuple(
            place_of(experiment, trial, name) for name in log_names(experiment.machine.spec)
        ),
    )
