"""A real run from its journal: the curve of each trial, and its times."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.dataclass import dataclass
from holdfast.experiment.records.event_codec import replay, unpack
from holdfast.experiment.records.journal_start import find_beginning
from holdfast.experiment.results.read_experiment import records_of
from holdfast.scheduler.events import Begun, ExperimentSpec
from holdfast.scheduler.machine import Machine
from holdfast.simulate.tally import Incumbent, Tally
from holdfast.syncer.journal.journal import Position, read, segment_name
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.events import Reported
from holdfast.trial.trial import StopReason, Trial, TrialSpec
from holdfast.trial.tuning import Mode

if TYPE_CHECKING:
    import pyarrow.fs


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
        self._busy_s += held * (machine.active_s - then_s)
        self._workers = max(self._workers, self._held)
        self._tally.saw(event, before, after, machine.active_s)
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
            duration_s=machine.active_s,
            busy_s=self._busy_s,
            overhead_s=beside_s / attempts if attempts else 0.0,
            workers=max(1, self._workers),
            reports=tally.reports,
        )

    def _trials(self) -> Iterator[RecordedTrial]:
        for trial in self._machine.trials.values():
            known = self._reports.get(trial.trial_id, {})
            stop = trial.stop
            # A scheduler that lets a trial finish says so by its name.
            whole = stop is not None and stop.reason is StopReason.FINISHED and not stop.by
            reports: list[RecordedReport] = []
            while len(reports) + 1 in known:
                reports.append(known[len(reports) + 1])
            yield RecordedTrial(spec=trial.spec, reports=tuple(reports), is_whole=whole)
