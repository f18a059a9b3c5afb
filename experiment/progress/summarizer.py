"""Makes summaries of the machine: counts, the trials to show, the best one, failures. Pure: no
I/O."""

from __future__ import annotations

from bisect import insort
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from heapq import nlargest
from operator import itemgetter
from typing import Any

from holdfast.experiment.callbacks.trial_view import Searched
from holdfast.experiment.folder.layout import log_names_of
from holdfast.experiment.progress.eta import (
    Course,
    Past,
    Throughput,
    epochs_of,
    last_iteration,
    share_done,
    time_left_s,
)
from holdfast.experiment.progress.scheduler_facts import Tally
from holdfast.experiment.progress.summary import (
    MAX_FAILURES,
    BestTrial,
    FailedTrial,
    NodesSummary,
    RunFacts,
    StorageAge,
    Summary,
    TrialRow,
)
from holdfast.experiment.progress.trial_table import lines_reserved, shares
from holdfast.experiment.progress.wording import (
    cause,
    confirmation_text,
    logs_of,
    path_of,
    user_frame,
)
from holdfast.scheduler.confirming import CANDIDATES
from holdfast.scheduler.events import ExperimentSpec
from holdfast.scheduler.launching import outlook_text
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.nodes.cluster import Cluster
from holdfast.text.trials import early_reason
from holdfast.trial.best import Rank, confirmed, leader, rank, value_of
from holdfast.trial.config import PLANNED
from holdfast.trial.errors import Failure
from holdfast.trial.metrics import lookup
from holdfast.trial.resources import Allocation
from holdfast.trial.trial import Status, StopReason, Trial
from holdfast.trial.values import flatten, spread

# The number of trials whose lengths are kept for the estimate.
_LENGTHS = 200

_OF_ONE_CAUSE = 5


class FinishedStats:
    """Statistics of the trials that have ended: counts, times, the best and the first failures."""

    def __init__(self, spec: ExperimentSpec, keep: int) -> None:
        self.counts: Counter[Status] = Counter()
        self.failed: list[Trial] = []
        self.causes: Counter[tuple[str, str]] = Counter()
        self.newest_failed: deque[Trial] = deque(maxlen=max(1, keep))
        self.time_s = 0.0
        self.silent = self.unread = 0
        self._lengths_s: deque[float] = deque(maxlen=_LENGTHS)
        self._kept = self._broken = 0
        # Fresh runs are in the tables, and must not crowd out the best of the search.
        self._spec, self._keep = spec, max(1, keep) + CANDIDATES * spec.confirm
        self.early: Counter[StopReason] = Counter()
        self.decided = Tally()
        self._ranked: dict[Status, list[tuple[Rank, Trial]]] = {
            Status.TERMINATED: [],
            Status.ERROR: [],
        }

    def add(self, trial: Trial, expected: int | None = None) -> None:
        """Add a trial that has ended; `expected` is the iteration with which it should have
        ended."""
        self.counts[trial.status] += 1
        self.decided.add(trial)
        self.time_s += trial.time_total_s
        self.unread += trial.unread
        if trial.status is Status.TERMINATED:
            self.silent += trial.row is None
            if reason := early_reason(trial):
                self.early[reason] += 1
            self._lengths_s.append(trial.time_total_s)
            self._kept += trial.iteration == expected
            self._broken += expected not in (None, trial.iteration)
        else:
            self.newest_failed.appendleft(trial)
            self._add_failure(trial)
        ranked = self._ranked[trial.status]
        insort(ranked, (rank(trial, self._spec.metric, self._spec.mode), trial), key=itemgetter(0))
        del ranked[: -self._keep]

    def _add_failure(self, trial: Trial) -> None:
        """Keep the first trials of each cause, so that a frequent cause does not hide the
        others."""
        if trial.error is None:
            return
        key = cause(trial.error.headline, user_frame(trial.error))
        self.causes[key] += 1
        if self.causes[key] <= _OF_ONE_CAUSE and len(self.failed) < MAX_FAILURES:
            self.failed.append(trial)

    @property
    def past(self) -> Past:
        return Past(lengths_s=sorted(self._lengths_s), kept=self._kept, broken=self._broken)

    def best(self, status: Status) -> list[Trial]:
        """Best first; trials without a value last; without a metric the newest first."""
        return [trial for _, trial in reversed(self._ranked[status])]

    def leaders(self) -> list[Trial]:
        """The best trial of the search with each status."""
        searched = (
            [trial for trial in self.best(status) if not trial.spec.confirms]
            for status in self._ranked
        )
        return [trials[0] for trials in searched if trials]


_KNOWN_PARAMS = 512
_SCALARS = (bool, int, float, str)
# `trial_id` is here too: in a row it always has holdfast's value.
_AUTOMATIC = frozenset({"done", "timestamp", "training_iteration", "time_total_s", "trial_id"})

# How long the loss of a node is news.
_NEWS_S = 60.0


class Summarizer:
    """Makes summaries of one machine, at a cost that depends only on the living trials.

    Each ended trial is looked at once: looking at 10,000 of them takes 15 ms, too much for four
    times a second next to the control loop. The table has at most `max_rows` trials; its columns
    are the metric and numbers that the trials report, at most `infer_limit` in all.
    """

    def __init__(self, machine: Machine, *, max_rows: int = 20, infer_limit: int = 3) -> None:
        self._machine = machine
        self._max_rows = max_rows
        self._infer_limit = infer_limit
        self._forget()

    def summarize(
        self, *, facts: RunFacts, now: float, storage: StorageAge | None = None
    ) -> Summary:
        """The run at `now` (seconds since the epoch).

        May be called from another thread than the one that changes the machine.
        """
        machine = self._machine
        alive = self._take_in(list(machine.trials.values()))
        ended = self._ended
        shown = self._worth_a_line(alive)
        params = self._params
        counts = Counter(trial.shown_status for trial in alive) + ended.counts
        total = self._total(facts)
        active_s = _active(machine, now)
        share, left_s = self._remaining.estimate(alive, ended, total, now)
        return Summary(
            name=facts.name,
            path=facts.path,
            counts={status: counts[status] for status in Status if counts[status]},
            total=total,
            **_table(
                shown,
                machine.spec,
                counts,
                self._infer_limit,
                self._remaining,
                params,
                machine.placement.holds,
            ),
            best=_best(
                [*alive, *ended.leaders(), *map(machine.trials.__getitem__, self._confirming)],
                machine.spec,
                params,
                is_over=machine.finished,
            ),
            failures=_failures(
                [*ended.failed, *(trial for trial in alive if _waits(trial))],
                facts,
                ended.causes,
                machine.spec,
            ),
            elapsed_s=facts.elapsed_s(now, active_s),
            left_s=_within_budget(left_s, active_s, machine.spec.budget_s),
            share=share,
            early=dict(ended.early),
            scheduler=ended.decided.and_of(alive).line(machine.spec),
            outlook=outlook_text(machine),
            interrupted=_interrupted(alive) if machine.finished else 0,
            silent=0 if machine.ending else ended.silent,
            unread=sum(trial.unread for trial in alive) + ended.unread,
            storage=storage,
            nodes=_nodes(machine.cluster, now) if machine.cluster else None,
            ending=machine.ending.message or machine.ending.reason if machine.ending else "",
            done=machine.finished,
            is_resumed=facts.failed_before is not None and not facts.is_over,
        )

    def _total(self, facts: RunFacts) -> int | None:
        if self._machine.search_ended:
            return self._seen
        if facts.total is None:
            return None
        # A person may have added samples, and trials besides those.
        planned: int | None = self._machine.spec.options.get(PLANNED, facts.total)
        return None if planned is None else planned + self._added

    def _forget(self, infeasible: int = 0) -> None:
        spec = self._machine.spec
        self._basis = (self._machine.epoch, spec, infeasible)
        self._params = _Params(spec)
        self._seen = self._added = 0
        # Fresh runs, and the trials that they confirm.
        self._confirming: dict[str, None] = {}
        self._alive: list[str] = []
        self._ended = FinishedStats(spec, self._max_rows)
        stop, policy = spec.stop.get("training_iteration"), self._machine.policy
        bounds = [one for one in (stop, getattr(policy, "most_iterations", None)) if one]
        self._remaining = RemainingTime(min(bounds, default=None))

    def _take_in(self, trials: Sequence[Trial]) -> list[Trial]:
        """The living trials, in order; adds those that have ended to the statistics."""
        infeasible = sum(trial.is_infeasible for trial in trials)
        if self._basis != (self._machine.epoch, self._machine.spec, infeasible):
            self._forget(infeasible)  # a restore may have reopened trials that had ended
        newest = [self._machine.trials[trial_id] for trial_id in self._alive]
        newest += trials[self._seen :]
        self._added += sum(trial.spec.is_added for trial in trials[self._seen :])
        for trial in trials[self._seen :]:
            if trial.spec.confirms:
                self._confirming |= dict.fromkeys((trial.spec.confirms, trial.trial_id))
        self._seen = len(trials)
        alive = []
        for trial in newest:
            if trial.status.is_final:
                self._ended.add(trial, self._remaining.last_iteration(trial))
            else:
                alive.append(trial)
        self._alive = [trial.trial_id for trial in alive]
        return alive

    def _worth_a_line(self, alive: Sequence[Trial]) -> list[Trial]:
        """The trials to show: those at work, then the best that have ended, then those that wait.

        Some lines are reserved for the best and for the newest failures.
        """
        at_work = [trial for trial in alive if trial.status.has_worker]
        paused = [trial for trial in alive if trial.shown_status is Status.PAUSED]
        pending = [trial for trial in alive if trial.shown_status is Status.PENDING]
        best = self._ended.best(Status.TERMINATED)
        lines_best, lines_failed = lines_reserved(self._max_rows)
        return shares(
            (at_work, paused, best, list(self._ended.newest_failed), pending),
            (0, 0, lines_best, lines_failed, 0),
            self._max_rows,
        )


def _interrupted(alive: Iterable[Trial]) -> int:
    return sum(trial.attempt > 0 or trial.waits_for_person for trial in alive)


def summary_of(
    trials: Sequence[Trial],
    facts: RunFacts,
    spec: ExperimentSpec,
    *,
    max_rows: int = 20,
    infer_limit: int = 4,
) -> Summary:
    """Some trials of an experiment, without its machine: the best first, or without a metric in
    order."""
    metric, mode = spec.metric, spec.mode
    ended = FinishedStats(spec, keep=1)
    for trial in trials:
        if trial.status.is_final:
            ended.add(trial)
    shown = list(trials[:max_rows])
    if metric is not None:
        shown = nlargest(max_rows, trials, key=lambda trial: rank(trial, metric, mode))
    params = _Params(spec)
    counts = Counter(trial.shown_status for trial in trials)
    return Summary(
        name=facts.name,
        path=facts.path,
        counts=counts,
        total=len(trials),
        **_table(shown, spec, counts, infer_limit, RemainingTime(), params, {}),
        best=_best(trials, spec, params),
        failures=_failures(ended.failed, facts, ended.causes, spec),
        early=dict(ended.early),
        unread=ended.unread,
    )


def _active(machine: Machine, now: float) -> float:
    waited = now - machine.now if machine.now and not machine.finished else 0.0
    return machine.active_s + max(0.0, waited)


def _best(
    trials: Sequence[Trial], spec: ExperimentSpec, params: _Params, *, is_over: bool = False
) -> BestTrial | None:
    metric, mode = spec.metric, spec.mode
    if metric is None or mode not in ("max", "min"):
        return None
    best = leader(trials, metric, mode)
    if best is None:
        return None
    found = confirmed(trials, metric, mode)
    value = found[0].mean if found else None
    value = value_of(best, metric) if value is None else value
    if value is None:
        return None
    return BestTrial(
        trial_id=best.trial_id,
        name=best.spec.name,
        metric=metric,
        value=value,
        params=params.of(best),
        iteration=best.iteration,
        early=early_reason(best),
        confirmation=confirmation_text(found, spec) if found or is_over else "",
    )


def _table(
    shown: Sequence[Trial],
    spec: ExperimentSpec,
    counts: Mapping[Status, int],
    infer_limit: int,
    remaining: RemainingTime,
    params: _Params,
    holds: Mapping[str, Allocation],
) -> dict[str, Any]:
    """The fields of a Summary for its table: these trials, and how many are not in it."""
    columns = _columns(shown, spec.metric, infer_limit)
    rows = _with_same_params(
        tuple(
            _row(trial, spec, columns, remaining, params, holds.get(trial.trial_id))
            for trial in shown
        ),
        shown,
    )
    return {
        "rows": rows,
        "hidden": _hidden(counts, shown),
        "metrics": columns,
        "params": tuple(dict.fromkeys(key for row in rows for key in row.params)),
    }


def _hidden(counts: Mapping[Status, int], shown: Sequence[Trial]) -> dict[Status, int]:
    left = dict(counts)
    for trial in shown:
        left[trial.shown_status] -= 1
    return {status: count for status, count in left.items() if count}


def _columns(shown: Sequence[Trial], metric: str | None, limit: int) -> tuple[str, ...]:
    names = dict.fromkeys([metric] if metric else [])
    for trial in shown:
        row = trial.shown_row
        for key in flatten(row):
            # Numbers inside a list are not metrics, and have no name that finds them.
            if type(lookup(row, key)) in (int, float) and key not in _AUTOMATIC:
                names.setdefault(key)
        if len(names) >= limit:
            break
    return tuple(names)[: max(limit, 1 if metric else 0)]


def _row(
    trial: Trial,
    spec: ExperimentSpec,
    columns: Sequence[str],
    remaining: RemainingTime,
    params: _Params,
    held: Allocation | None,
) -> TrialRow:
    row = trial.shown_row
    most = len(trial.spec.resources.bundles) if trial.spec.resources.is_elastic else 0
    values = {name: lookup(row, name) for name in columns}
    return TrialRow(
        trial_id=trial.trial_id,
        name=trial.spec.name,
        status=trial.shown_status,
        params=params.of(trial),
        iteration=trial.iteration,
        time_total_s=trial.time_total_s,
        metrics={name: value for name, value in values.items() if type(value) in (int, float)},
        retries=_retries(trial),
        last=remaining.last_iteration(trial),
        # The first bundle is the coordinator's.
        workers=trial.bundles - 1 if most and trial.bundles else 0,
        most_workers=most - 1 if most else 0,
        nodes=_nodes_of(trial, held),
        early=early_reason(trial),
        has_begun=trial.attempt > 0,
        usage=trial.usage,
        unread=trial.unread,
        confirms=trial.spec.confirms,
    )


class _Params:
    """A cache of trials' varied parameters: finding them takes 30 us, and they hardly ever
    change."""

    def __init__(self, spec: ExperimentSpec) -> None:
        self._searched = Searched(spec.space)
        self._known: dict[str, tuple[Mapping[str, Any], dict[str, Any]]] = {}

    def of(self, trial: Trial) -> dict[str, Any]:
        config, params = self._known.get(trial.trial_id, (None, {}))
        if config is not trial.config:
            if len(self._known) >= _KNOWN_PARAMS:
                self._known.clear()
            params = self._searched.of(trial)
            self._known[trial.trial_id] = (trial.config, params)
        return params


def _with_same_params(rows: tuple[TrialRow, ...], trials: Sequence[Trial]) -> tuple[TrialRow, ...]:
    """The rows, each with the constants that other rows vary: those of another space, or what a
    scheduler has replaced elsewhere."""
    names = dict.fromkeys(name for row in rows for name in row.params)

    def filled(row: TrialRow, trial: Trial) -> TrialRow:
        if len(row.params) == len(names):
            return row
        config = spread(trial.config)
        more = {name: config[name] for name in names if type(config.get(name)) in _SCALARS}
        return replace(row, params={**more, **row.params})

    return tuple(map(filled, rows, trials))


def _retries(trial: Trial) -> int:
    return trial.setbacks - (trial.status is Status.ERROR)


def _nodes_of(trial: Trial, held: Allocation | None) -> tuple[str, ...]:
    """The nodes on which it runs or ended; none for a trial that waits."""
    if trial.status.has_worker and not trial.place.nodes:
        return held.nodes if held is not None else ()  # its worker has not started yet
    is_somewhere = trial.status.has_worker or trial.status.is_final
    return tuple(trial.place.nodes) if is_somewhere else ()


def _nodes(cluster: Cluster, now: float) -> NodesSummary:
    nodes = list(cluster.nodes.items())
    former = list(cluster.former.items())
    left = [
        (name, node.cause)
        for name, node in former
        if not node.is_earlier and now - node.left_at < _NEWS_S
    ]
    most = [kind.most for kind in cluster.offer]
    return NodesSummary(
        here=sum(not node.leaving for _, node in nodes),
        most=None if None in most else sum(filter(None, most)),
        leaving=tuple(name for name, node in nodes if node.leaving),
        left=tuple(reversed(left)),
    )


def _waits(trial: Trial) -> bool:
    """True if it failed and has not restarted yet."""
    return trial.status is Status.PENDING and trial.error is not None


def _failures(
    failed: Sequence[Trial],
    facts: RunFacts,
    causes: Mapping[tuple[str, str], int],
    spec: ExperimentSpec,
) -> tuple[FailedTrial, ...]:
    log_names = log_names_of(spec.options.get("log_to_file", False))
    shown = [
        (t, t.error, user_frame(t.error), logs_of(t.error, log_names))
        for t in failed[:MAX_FAILURES]
        if t.error
    ]
    return tuple(
        FailedTrial(
            trial_id=trial.trial_id,
            attempt=trial.attempt,
            name=trial.spec.name,
            headline=error.headline,
            where=where,
            node=error.on_node,
            error_file=_path(facts, trial, log, error),
            other_file=_path(facts, trial, other, error),
            retries=_retries(trial),
            final=trial.status is Status.ERROR,
            of_cause=causes.get(cause(error.headline, where), 0) if trial.status.is_final else 0,
            is_earlier=(trial.trial_id, trial.attempt) in (facts.failed_before or ()),
        )
        for trial, error, where, (log, other) in shown
    )


def _path(facts: RunFacts, trial: Trial, name: str, error: Failure) -> str:
    below = f"{trial.spec.dirname}/{name}" if name else ""
    return path_of(below, facts.local_path, facts.path, on_node=bool(error.node))


def _within_budget(left_s: float | None, active_s: float, budget_s: float | None) -> float | None:
    if budget_s is None:
        return left_s
    until_budget_s = max(0.0, budget_s - active_s)
    return until_budget_s if left_s is None else min(left_s, until_budget_s)


# -- how much of a run is done, and when it will end ----------------------------------------------

_UNKNOWN = -1
# Before so much is done, or trained, the first iterations decide, which include imports: 1% of a
# run of 47 s was estimated to 27 minutes.
_SHARE, _TRAINED_S = 0.05, 30.0


class RemainingTime:
    """The estimates of a Summarizer; no trial trains more than `most_iterations`."""

    def __init__(self, most_iterations: float | None = None) -> None:
        self._bound = most_iterations
        self._throughput = Throughput()
        # Cached, because looking up 1,000 configurations takes 15 ms.
        self._epochs: dict[str, int | None] = {}

    def last_iteration(self, trial: Trial) -> int | None:
        epochs = self._epochs.get(trial.trial_id, _UNKNOWN)
        if epochs == _UNKNOWN:
            epochs = self._epochs[trial.trial_id] = epochs_of(trial.config)
        return last_iteration(trial, self._bound, epochs)

    def estimate(
        self, alive: Sequence[Trial], ended: FinishedStats, total: int | None, now: float
    ) -> tuple[float | None, float | None]:
        """The fraction that is done (0 to 1) and the seconds that are left; None if not known."""
        courses = [course for trial in alive if (course := self._course(trial, now))]
        trained_s = sum(course.spent_s + course.since_s for course in courses) + ended.time_s
        finished = ended.counts.total()
        at_work = sum(trial.status.has_worker for trial in alive)
        self._throughput.record(now, at_work, finished, trained_s)
        if not total:
            return None, None
        past = ended.past
        begun = sum(share_done(course, past) for course in courses)
        left_s = time_left_s(
            courses,
            past,
            to_come=max(0, total - finished - len(alive)),
            slots=self._throughput.slots,
            overhead_s=self._throughput.overhead_s,
        )
        share = min(1.0, (finished + begun) / total)
        is_early = share < _SHARE and trained_s < _TRAINED_S
        return share, None if is_early else left_s

    def _course(self, trial: Trial, now: float) -> Course | None:
        if trial.status is Status.STOPPING:
            return None
        has_reported = trial.status is Status.RUNNING and trial.iteration > trial.resumed_from
        return Course(
            spent_s=trial.time_total_s,
            since_s=max(0.0, now - trial.reported_at) if has_reported else 0.0,
            iteration=trial.iteration,
            last=self.last_iteration(trial),
            at_work=trial.status.has_worker,
        )
