"""The results of a simulation and of a replay, and the recording of a real run."""

from __future__ import annotations

import math
import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.dataclass import dataclass
from holdfast.experiment.records.journal import find_beginning, replay, unpack
from holdfast.results.reading import records_of
from holdfast.scheduler.events import Begun, Event, ExperimentSpec
from holdfast.scheduler.machine import Machine
from holdfast.syncer.journal.journal import Position, read, segment_name
from holdfast.text.values import duration
from holdfast.trial.errors import Failure, InvalidConfig
from holdfast.trial.events import Reported
from holdfast.trial.metrics import Mode, lookup
from holdfast.trial.trial import Status, StopReason, Trial, TrialSpec

if TYPE_CHECKING:
    import pyarrow.fs


@dataclass(frozen=True, slots=True, kw_only=True)
class Incumbent:
    """From `elapsed_s` (seconds since the start) this trial had the best value."""

    elapsed_s: float
    value: float
    trial_id: str
    iteration: int


class Tally:
    """`metric` and `mode` are the goal, or None."""

    def __init__(self, metric: str | None, mode: str | None) -> None:
        self._metric = metric if mode else None
        self._sign = 1.0 if mode == "max" else -1.0
        self.incumbents: list[Incumbent] = []
        self.best: dict[str, float] = {}
        self.furthest: dict[str, int] = {}
        self.faults: Counter[str] = Counter()
        self.reports = self.repeated = 0
        self.trained_s = self.busy_s = 0.0

    def count(self, event: Event, before: Trial | None, after: Trial | None, now_s: float) -> None:
        """Count an event of a trial; messages of ended attempts change nothing."""
        if after is None or after is before:
            return
        if isinstance(event, Reported):
            self._count(event, now_s)

    def _count(self, event: Reported, now_s: float) -> None:
        trial_id = event.trial_id
        self.reports += 1
        self.trained_s += event.time_this_iter_s
        if event.iteration > self.furthest.get(trial_id, 0):
            self.furthest[trial_id] = event.iteration
        else:
            self.repeated += 1
        if self._metric is None:
            return
        value = lookup(event.metrics, self._metric)
        if isinstance(value, (int, float)) and math.isfinite(value):
            self._compare(event, float(value), now_s)

    def _compare(self, event: Reported, value: float, now_s: float) -> None:
        own = self.best.get(event.trial_id)
        if own is None or self._sign * (value - own) > 0:
            self.best[event.trial_id] = value
        if not self.incumbents or self._sign * (value - self.incumbents[-1].value) > 0:
            found = Incumbent(
                elapsed_s=now_s,
                value=value,
                trial_id=event.trial_id,
                iteration=event.iteration,
            )
            self.incumbents.append(found)


class RecordedReport(NamedTuple):
    """One reported iteration, and its seconds."""

    metrics: Mapping[str, Any]
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTrial:
    """`reports` from iteration 1 on, each from the newest attempt that came so far.

    `is_whole`: it returned or reached a bound. Other trials were stopped or failed, and their
    further course is unknown.
    """

    spec: TrialSpec
    reports: tuple[RecordedReport, ...]
    is_whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A recorded run. `duration_s` is the time that it ran, `busy_s` the time that trials held
    workers, `workers` the most that ran at once. `overhead_s` is the average time of an attempt
    outside its iterations."""

    spec: ExperimentSpec
    trials: tuple[RecordedTrial, ...]
    incumbents: tuple[Incumbent, ...]
    duration_s: float
    busy_s: float
    overhead_s: float
    workers: int
    reports: int


def read_recording(
    path: str | os.PathLike[str],
    filesystem: pyarrow.fs.FileSystem | None = None,
    *,
    metric: str | None = None,
    mode: Mode | None = None,
) -> Recording:
    """Read the journal of the experiment at `path`; `metric` and `mode` instead of its own.

    Raises ExperimentNotFound, StorageError, and InvalidConfig for a run whose trials changed their
    configs, or whose first records were lost.
    """
    with records_of(path, filesystem) as layout:
        beginning = find_beginning(layout.journal)
        assert beginning is not None
        if beginning.is_anew:
            raise InvalidConfig(
                f"{path} cannot be replayed: the first records of its journal were lost, and no "
                f"record has the rows before {segment_name(beginning.position.segment)}"
            )
        reader = _Reader(metric, mode)
        for payload, end in read(layout.journal, beginning.position):
            reader.take(payload, end)
    return reader.recording()


class _Reader:
    """Folds the journal, and collects the reports of each trial."""

    def __init__(self, metric: str | None, mode: Mode | None) -> None:
        self._machine = Machine()
        self._goal = (metric, mode)
        self._tally = Tally(metric, mode)
        self._reports: dict[str, dict[int, RecordedReport]] = {}
        self._busy_s = 0.0
        self._workers = 0
        # When the fresh runs began, which are no part of the search; None while it goes on.
        self._over_s: float | None = None

    def take(self, payload: bytes, end: Position) -> None:
        record = unpack(payload, end)
        machine, event = self._machine, record.event
        trial_id = getattr(event, "trial_id", "")
        before, then_s, held = machine.trials.get(trial_id), machine.active_s, self._held
        replay(machine, record, payload, end)
        after = machine.trials.get(trial_id)
        if isinstance(event, Begun):
            metric, mode = self._goal
            self._goal = (metric or event.spec.metric, mode or event.spec.mode)
            self._tally = Tally(*self._goal)
        if after is not None:
            if after.spec.confirms:
                self._over_s = then_s if self._over_s is None else self._over_s
                return
            self._over_s = None
        self._busy_s += held * (machine.active_s - then_s)
        self._workers = max(self._workers, self._held)
        self._tally.count(event, before, after, machine.active_s)
        if isinstance(event, Reported) and before is not None and after is not before:
            self._note(event, before)

    @property
    def _held(self) -> int:
        return len(self._machine.placement.holds)

    def _note(self, event: Reported, trial: Trial) -> None:
        if trial.changed_config is not None:
            raise InvalidConfig(
                f"{trial.spec.name} continued with another config after iteration "
                f"{trial.resumed_from}, as under population based training: its reports are "
                f"not the curve of one config, and cannot be replayed"
            )
        report = RecordedReport(event.metrics, event.time_this_iter_s)
        self._reports.setdefault(event.trial_id, {})[event.iteration] = report

    def recording(self) -> Recording:
        machine, tally = self._machine, self._tally
        attempts = sum(trial.attempt for trial in machine.trials.values())
        beside_s = max(0.0, self._busy_s - tally.trained_s)
        return Recording(
            spec=machine.spec,
            trials=tuple(self._trials()),
            incumbents=tuple(tally.incumbents),
            duration_s=machine.active_s if self._over_s is None else self._over_s,
            busy_s=self._busy_s,
            overhead_s=beside_s / attempts if attempts else 0.0,
            workers=max(1, self._workers),
            reports=tally.reports,
        )

    def _trials(self) -> Iterator[RecordedTrial]:
        for trial in self._machine.trials.values():
            if trial.spec.confirms:
                continue
            known = self._reports.get(trial.trial_id, {})
            stop = trial.stop
            # A scheduler that lets a trial finish says so by its name.
            whole = stop is not None and stop.reason is StopReason.FINISHED and not stop.by
            reports: list[RecordedReport] = []
            while len(reports) + 1 in known:
                reports.append(known[len(reports) + 1])
            yield RecordedTrial(spec=trial.spec, reports=tuple(reports), is_whole=whole)


_FAILURES = {
    "user": ("iteration raised", "iterations raised"),
    "lost": ("worker died", "workers died"),
    "node": ("node was lost", "nodes were lost"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedTrial:
    """A trial at the end: `metrics` are those of its last report, `best` is its best value.

    `iteration` is its last iteration, `attempts` the number of its starts.

    `stop_reason` is that of a `Result`; None for one that has not ended.
    """

    trial_id: str
    config: Mapping[str, Any]
    status: Status
    stop_reason: StopReason | None
    iteration: int
    attempts: int
    metrics: Mapping[str, Any] | None
    best: float | None
    error: Failure | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """`trials` in the order of their numbers; all durations in simulated seconds.

    `incumbents` has one entry for each report that was better than all before. `busy_s` is the
    time that trials held workers, summed over the workers; `trained_s` is the part of it that went
    into reported iterations. `repeated` counts reports of iterations that their trial had reported
    before, as after a failure. `events` is the number of records in the trace, and `digest` its
    SHA-256. `failures` counts injected failures by kind: "user", "lost", "node". `reason` and
    `message` are those of the run's end.
    """

    metric: str | None
    mode: str | None
    seed: int
    trials: tuple[SimulatedTrial, ...]
    incumbents: tuple[Incumbent, ...]
    duration_s: float
    workers: int
    busy_s: float
    trained_s: float
    reports: int
    repeated: int
    events: int
    failures: Mapping[str, int]
    warnings: tuple[str, ...]
    reason: str
    message: str
    digest: str

    @property
    def idle_s(self) -> float:
        """Worker-seconds without a trial, or lost with their nodes."""
        return max(0.0, self.workers * self.duration_s - self.busy_s)

    @property
    def best(self) -> SimulatedTrial | None:
        """The trial with the best value; None if there is no value."""
        if not self.incumbents:
            return None
        trial_id = self.incumbents[-1].trial_id
        return next(trial for trial in self.trials if trial.trial_id == trial_id)

    @property
    def best_value(self) -> float | None:
        """The best reported value."""
        return self.incumbents[-1].value if self.incumbents else None

    def best_value_at(self, elapsed_s: float) -> float | None:
        """The best value reported within the first `elapsed_s` seconds."""
        at = bisect_right(self.incumbents, elapsed_s, key=lambda found: found.elapsed_s)
        return self.incumbents[at - 1].value if at else None

    def reached_s(self, value: float) -> float | None:
        """Seconds until a value was as good as this one; None if none was."""
        sign = 1.0 if self.mode == "max" else -1.0
        found = (i.elapsed_s for i in self.incumbents if sign * (i.value - value) >= 0)
        return next(found, None)

    @property
    def stop_reasons(self) -> dict[str, int]:
        """The number of ended trials by their `stop_reason`."""
        found = Counter(trial.stop_reason for trial in self.trials)
        return {reason.value: found[reason] for reason in StopReason if found[reason]}

    def __str__(self) -> str:
        """A few lines: duration, cost and best value."""
        ended = ", ".join(f"{count:,} {word}" for word, count in self.stop_reasons.items())
        if unended := len(self.trials) - sum(self.stop_reasons.values()):
            ended = f"{ended}, {unended:,} did not end".removeprefix(", ")
        again = f", {self.repeated:,} of them repeated iterations" if self.repeated else ""
        lines = [
            f"{len(self.trials):,} trials on {self.workers:,} workers: {ended}",
            f"time          {duration(self.duration_s)}",
            f"worker-hours  {hours(self.busy_s)} used, {hours(self.idle_s)} idle",
            f"reports       {self.reports:,}{again}",
        ]
        if self.failures:
            lines.append(f"faults        {_fault_counts(self.failures)}")
        if self.incumbents:
            last = self.incumbents[-1]
            lines.append(
                f"best          {self.metric} = {last.value:.6g} after {duration(last.elapsed_s)} "
                f"(trial {last.trial_id}, iteration {last.iteration})"
            )
        if self.message:
            lines.append(f"ended         {self.reason}: {self.message}")
        return "\n".join(lines)


def hours(seconds: float) -> str:
    """Worker-hours in three digits."""
    value = seconds / 3600
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _fault_counts(failures: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {_FAILURES[kind][count > 1]}" for kind, count in failures.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The recorded run and the simulated one; `str()` returns a table of both.

    `cut_short` counts trials that reached the end of their recording, where they had been stopped
    or had failed: their further course is unknown, so they end there. `approximated` counts
    reports of configs that were not recorded, or that a trial got during its training.
    """

    recorded: Recording
    simulated: Simulation
    scheduler: str
    cut_short: int
    approximated: int

    def __str__(self) -> str:
        """A table of the recorded and the simulated run, and the limits of the latter."""
        was, would = self.recorded, self.simulated
        metric = would.metric or "value"
        rows = [("", "as it was", f"under {self.scheduler}")]
        rows.append(("workers", f"{was.workers:,}", f"{would.workers:,}"))
        rows.append(("time to finish", duration(was.duration_s), duration(would.duration_s)))
        rows.append(("worker-hours", hours(was.busy_s), hours(would.busy_s)))
        rows.append(("iterations", f"{was.reports:,}", f"{would.reports:,}"))
        rows.append((f"best {metric}", _best(was.incumbents), _best(would.incumbents)))
        rows.append(("found after", _found(was.incumbents), _found(would.incumbents)))
        if was.incumbents:
            reached = would.reached_s(was.incumbents[-1].value)
            text = "never" if reached is None else duration(reached)
            rows.append(("as good as it was after", _found(was.incumbents), text))
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = [
            "  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows
        ]
        return "\n".join([*lines, *_reservations(self)])

    def plain(self) -> dict[str, Any]:
        """The figures of both as plain data; times are in seconds."""
        was, would = self.recorded, self.simulated
        return {
            "metric": would.metric,
            "mode": would.mode,
            "recorded": {
                "workers": was.workers,
                "duration_s": was.duration_s,
                "busy_s": was.busy_s,
                "reports": was.reports,
                **_best_figures(was.incumbents),
            },
            "simulated": {
                "scheduler": self.scheduler,
                "workers": would.workers,
                "duration_s": would.duration_s,
                "busy_s": would.busy_s,
                "reports": would.reports,
                "stop_reasons": would.stop_reasons,
                **_best_figures(would.incumbents),
            },
            "cut_short": self.cut_short,
            "approximated": self.approximated,
            "digest": would.digest,
        }


def _best_figures(incumbents: Sequence[Incumbent]) -> dict[str, Any]:
    if not incumbents:
        return {"best": None, "best_after_s": None, "best_trial": None}
    last = incumbents[-1]
    return {"best": last.value, "best_after_s": last.elapsed_s, "best_trial": last.trial_id}


def _best(incumbents: Sequence[Incumbent]) -> str:
    return f"{incumbents[-1].value:.6g}" if incumbents else "-"


def _found(incumbents: Sequence[Incumbent]) -> str:
    return duration(incumbents[-1].elapsed_s) if incumbents else "-"


def _reservations(both: Replay) -> Iterator[str]:
    """The limits of the figures."""
    if both.cut_short:
        trials = "1 trial" if both.cut_short == 1 else f"{both.cut_short:,} trials"
        yield (
            f"{trials} reached the end of the recording, where the training had been stopped "
            f"or had failed: their further course is unknown"
        )
    if both.approximated:
        yield (
            f"{both.approximated:,} of {both.simulated.reports:,} reports are estimates: their "
            f"configs were not recorded, and follow the nearest recorded ones"
        )
