"""One experiment that is read once and then followed, as its page needs it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from holdfast.dataclass import dataclass
from holdfast.experiment.browse.condition import Condition
from holdfast.experiment.browse.following import INTERVAL_STORAGE_S, PAUSE_PER_CPU_S
from holdfast.experiment.browse.locate import LocatedExperiment, published_as
from holdfast.experiment.folder.trial_folder import TrialFolder
from holdfast.experiment.page.curve import Wanted
from holdfast.experiment.page.entries import Entries
from holdfast.experiment.page.facts import facts_of, summary_of
from holdfast.experiment.page.trial_rows import read_curves
from holdfast.experiment.page.values import finite_or_none, json_value
from holdfast.experiment.progress.summarizer import Summarizer
from holdfast.scheduler.machine import Machine
from holdfast.syncer.journal.journal import segments
from holdfast.syncer.journal.stretches import segment_size
from holdfast.syncer.uploader.lock_holder import current_holder
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.trial import Trial

# The least time between two looks at this machine. A page is at most 1 s behind a report.
_HERE_S: Final = 0.4
# A live run's remaining time changes without a record.
_FACTS_S: Final = 5.0
_MOST_METRICS: Final = 50
_MOST_TRIALS: Final = 500
_MOST_POINTS: Final = 20_000
_FEWEST_POINTS: Final = 10


class NotThere(InvalidConfig):
    """The experiment has no such trial, file or checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The state after a look.

    `version` grows with each change of a trial, and `facts` with each change of the facts; both
    are larger than those of all earlier processes that showed this experiment. `is_live`: a
    process runs it, so that there may be more to see.
    """

    version: int
    facts: int
    is_live: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """A file to send: `pieces` are read while they are sent.

    `name` is a name for the user's folder of downloads. `media_type` is that of an image that a
    browser may show, "" for everything else. `size_bytes` is None if it is not known.
    """

    name: str
    media_type: str
    size_bytes: int | None
    pieces: Iterator[bytes]


class FollowedExperiment:
    """All methods block, and may be called from several threads: each has its turn.

    Those that read files of the experiment raise NotThere for what it does not have,
    LeadsElsewhere or NotRegular for what is not a plain file in it, StorageError and OSError.

    `find` reads the experiment; `clock` returns seconds since any fixed start, `cpu` the CPU time
    of this thread, `now` seconds since 1970.
    """

    def __init__(
        self,
        key: str,
        find: Callable[[], LocatedExperiment],
        *,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.thread_time,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Raises what `find` raises."""
        self.key = key
        self._find, self._clock, self._cpu, self._now = find, clock, cpu, now
        self._lock = threading.RLock()
        self._reset_at = 0
        self._facts: dict[str, Any] = {}
        self._facts_version = self._facts_of = 0
        self._facts_at = self._facts_due_at = 0.0
        self._entries = Entries(int(now() * 1_000))
        self._is_live = False
        self._mark: object = None
        self._experiment: LocatedExperiment
        self._summarizer: Summarizer
        self._load()
        self._refresh_facts()
        self._looked_at = clock()

    @property
    def version(self) -> int:
        return self._entries.version

    @property
    def local_root(self) -> str | None:
        """The experiment's tree on this machine, where a live run has its control socket; None if
        this machine has none."""
        layout = self._experiment.read.layout
        return None if layout is None else str(layout.root)

    def look(self) -> Change:
        """Read what is new: costs a stat of the journal if nothing is. It looks every 0.4 s at
        most, in storage every 5 s, and otherwise returns the state of the last look.

        Raises ExperimentNotFound once the experiment has been deleted, StorageError, OSError; the
        state before stays.
        """
        with self._lock:
            is_stored = self._experiment.read.layout is None
            pause_s = INTERVAL_STORAGE_S if is_stored else _HERE_S
            if self._clock() - self._looked_at >= pause_s:
                self._looked_at = self._clock()
                self._read_news()
                self._refresh_facts()
            return Change(
                version=self._entries.version,
                facts=self._facts_version,
                is_live=self._is_live,
            )

    def facts(self) -> dict[str, Any]:
        """The answer of api/e/KEY: as of the last look, except `now`."""
        with self._lock:
            return {**self._facts, "version": self._entries.version, "now": self._now()}

    def trials(self) -> dict[str, Any]:
        """The answer of api/e/KEY/trials."""
        with self._lock:
            return self._entries.columns()

    def changed_since(self, version: int) -> dict[str, Any] | None:
        """The event `trials`: those that have changed since this version, perhaps none.

        None if the page must read everything again (the event `reset`): the version is of another
        run of this name, or of records that no longer exist.
        """
        with self._lock:
            if not self._reset_at <= version <= self._entries.version:
                return None
            found = list(self._entries.changed_since(version))
            return {"version": self._entries.version, "trials": found}

    def rows(
        self, trials: Sequence[tuple[str, int]], metrics: Sequence[str], points: int
    ) -> dict[str, Any]:
        """The answer of api/e/KEY/rows; each trial's id with the iteration after which rows are
        wanted (0: all). A trial whose rows cannot be read is in `missing`, and no error."""
        wanted: list[tuple[Trial, Wanted]] = []
        missing: dict[str, str] = {}
        names = list(dict.fromkeys(metrics))[:_MOST_METRICS]
        points = min(max(points, _FEWEST_POINTS), _MOST_POINTS)
        with self._lock:
            machine, folder_of = self._experiment.machine, self._folder_of
            is_stored = self._experiment.read.layout is None
            for trial_id, after in list(dict(trials).items())[:_MOST_TRIALS]:
                trial = machine.trials.get(trial_id)
                if trial is None:
                    missing[trial_id] = f"there is no trial {trial_id}"
                    continue
                # What was cut off since is answered by no rows from there on.
                after = min(max(after, 0), trial.iteration)
                wanted.append((trial, Wanted(metrics=names, after=after, points=points)))
        found: dict[str, Any] = {}
        for trial, curve in read_curves(wanted, folder_of, is_stored=is_stored):
            if isinstance(curve, str):
                missing[trial.trial_id] = curve
            else:
                found[trial.trial_id] = curve.plain()
        return {"trials": found, "missing": missing}

    def trial(self, trial_id: str) -> dict[str, Any]:
        """The answer of api/e/KEY/t/ID."""
        raise NotImplementedError

    def log(self, trial_id: str, name: str, offset: int) -> dict[str, Any]:
        """The answer of api/e/KEY/t/ID/log/NAME."""
        raise NotImplementedError

    def artifact(self, trial_id: str, path: str) -> Download:
        """A file of the trial, by its path in the trial's folder."""
        raise NotImplementedError

    def checkpoint_tar(self, trial_id: str, dirname: str) -> Download:
        """A checkpoint of the trial as a tar archive."""
        raise NotImplementedError

    def importance(self, metric: str) -> dict[str, Any]:
        """The answer of api/e/KEY/importance. Raises InvalidConfig if it cannot be computed, with
        the reason."""
        with self._lock:
            results = self._experiment.results
        found = asdict(results.importances(metric, algorithm="rank"))
        plain: dict[str, Any] = json_value(found)
        return plain

    def scheduler(self) -> Mapping[str, Any]:
        """The answer of api/e/KEY/scheduler."""
        with self._lock:
            machine = self._experiment.machine
            trials = list(machine.trials.values())
            takeovers = self._facts["takeovers"]
        visits = [
            {
                "trial_id": trial.trial_id,
                "milestone": visit.milestone,
                "bracket": visit.bracket,
                "promoted": visit.promoted,
                "value": finite_or_none(visit.value),
                "cutoff": finite_or_none(visit.cutoff),
                "at": visit.at,
            }
            for trial in trials
            for visit in trial.rungs
        ]
        return {"scheduler": machine.spec.scheduler, "visits": visits, "takeovers": takeovers}

    def _folder_of(self, trial: Trial) -> TrialFolder:
        read = self._experiment.read
        return TrialFolder.of(trial.spec, read.location, read.layout)

    def _read_news(self) -> None:
        mark = self._mark_of(self._experiment)
        if mark != self._mark:
            self._load()

    def _load(self) -> None:
        """Read the experiment as a whole."""
        found = self._find()
        self._mark = self._mark_of(found)
        machine = found.machine
        before = getattr(self, "_experiment", None)
        if before is not None and not _continues(before.machine, machine):
            self._entries = Entries(self._entries.version + 1)
            self._reset_at = self._entries.version
        self._experiment = found
        self._summarizer = Summarizer(machine)
        self._is_live = found.condition(self._now()) is Condition.LIVE
        self._entries.update(machine, list(machine.trials), is_live=self._is_live)

    def _mark_of(self, experiment: LocatedExperiment) -> object:
        """Changes with each record. Raises StorageError, OSError."""
        layout = experiment.read.layout
        if layout is None:
            return published_as(experiment.read.location)
        newest = max(segments(layout.journal), default=0)
        return newest, segment_size(layout.journal, newest), current_holder(layout.lock)

    def _refresh_facts(self) -> None:
        """Compute the facts again if they have changed, but use at most a twentieth of a core."""
        at = self._clock()
        is_old = self._is_live and at - self._facts_at >= _FACTS_S
        if at < self._facts_due_at or (self._facts_of == self._entries.version and not is_old):
            return
        used_s, now = self._cpu(), self._now()
        summary = summary_of(self._summarizer, self._experiment, now=now)
        self._facts = {
            "key": self.key,
            **facts_of(self._experiment, self._entries, summary, now=now, reports_per_s=None),
            "steering": {"possible": False, "why_not": ""},
            "queued_configs": [],
            "timeline": [],
        }
        self._facts_of, self._facts_at = self._entries.version, at
        self._facts_version = max(self._facts_version + 1, int(now * 1_000))
        self._facts_due_at = at + PAUSE_PER_CPU_S * (self._cpu() - used_s)


def _continues(before: Machine, after: Machine) -> bool:
    """Whether it is the same run, and no trial is missing that was there before."""
    is_same = before.spec.experiment_id == after.spec.experiment_id
    return is_same and before.trials.keys() <= after.trials.keys()
