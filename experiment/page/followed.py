"""One experiment that is read once and then followed, as its page needs it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from holdfast.dataclass import dataclass
from holdfast.experiment.browse.condition import Condition
from holdfast.experiment.browse.following import INTERVAL_STORAGE_S, PAUSE_PER_CPU_S
from holdfast.experiment.browse.locate import LocatedExperiment, published_as
from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.folder.trial_folder import TrialFolder
from holdfast.experiment.page.curve import Point, Wanted
from holdfast.experiment.page.entries import Entries
from holdfast.experiment.page.facts import Causes, facts_of, summary_of
from holdfast.experiment.page.folding import AnotherBegins, Folding
from holdfast.experiment.page.history import History
from holdfast.experiment.page.journal_tail import JournalReplaced, JournalTail, hear_journal
from holdfast.experiment.page.tar import checkpoint_tar
from holdfast.experiment.page.timeline import concurrency, starts, timeline_of
from holdfast.experiment.page.trial_files import Download as Download
from holdfast.experiment.page.trial_files import NotThere as NotThere
from holdfast.experiment.page.trial_files import artifact
from holdfast.experiment.page.trial_page import read_log, trial_plain
from holdfast.experiment.page.trial_rows import read_curves
from holdfast.experiment.page.values import finite_or_none, json_value
from holdfast.experiment.progress.summarizer import Summarizer
from holdfast.experiment.records.journal_start import find_beginning
from holdfast.experiment.results.read_experiment import KeptRecords
from holdfast.experiment.steering.client import why_not
from holdfast.names import shown
from holdfast.scheduler.machine import Machine
from holdfast.syncer.journal.journal import Position
from holdfast.syncer.stores.store import ObjectInfo
from holdfast.syncer.uploader.lock_holder import current_holder
from holdfast.trial.errors import UnreadableRecord
from holdfast.trial.trial import Trial

# The least time between two looks at this machine. A page is at most 1 s behind a report.
_HERE_S: Final = 0.4
_HOLDER_S: Final = 2.0
# A live run's remaining time changes without a record.
_FACTS_S: Final = 5.0
# The reports of so many seconds give their rate.
_RATE_S: Final = 10.0
# A journal of this size is read in 0.1 s; that of a larger experiment only after its first page.
_SMALL_BYTES: Final = 16 << 20
_MOST_METRICS: Final = 50
_MOST_TRIALS: Final = 500
_MOST_POINTS: Final = 20_000
_FEWEST_POINTS: Final = 10


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


class FollowedExperiment:
    """All methods block, and may be called from several threads.

    Those that read files of the experiment raise NotThere for what it does not have,
    LeadsElsewhere or NotRegular for what is not a plain file in it, StorageError and OSError.

    `find` reads the experiment, what is in storage to the records given; `clock` returns seconds
    since any fixed start, `cpu` the CPU time of this thread, `now` seconds since 1970.
    """

    def __init__(
        self,
        key: str,
        find: Callable[[KeptRecords], LocatedExperiment],
        *,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.thread_time,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Raises what `find` raises."""
        self.key = key
        self._find, self._clock, self._cpu, self._now = find, clock, cpu, now
        # One thread looks at a time; the state changes under the second lock only.
        self._looking, self._lock = threading.Lock(), threading.Lock()
        self._kept = KeptRecords()
        self._reset_at = int(now() * 1_000)
        self._entries = Entries(self._reset_at)
        self._facts: dict[str, Any] = {}
        self._facts_version = 0
        self._facts_at = self._facts_due_at = self._holder_at = 0.0
        self._is_dirty = True
        self._rate: deque[tuple[float, int]] = deque()
        self._fault = ""
        self._experiment: LocatedExperiment
        self._folding: Folding
        self._tail: JournalTail
        self._head: ObjectInfo | None = None
        self._summarizer: Summarizer
        self._causes: Causes
        self._history: History | None = None
        self._is_live = False
        try:
            self._load()
            if self._tail.size_bytes <= _SMALL_BYTES:
                self._scan()
            self._refresh_facts()
        except BaseException:
            self.close()
            raise
        self._looked_at = clock()

    def close(self) -> None:
        """Forget what was downloaded."""
        self._kept.close()

    @property
    def version(self) -> int:
        return self._entries.version

    @property
    def local_root(self) -> str | None:
        """The experiment's tree on this machine; None if this machine has none."""
        layout = self._experiment.read.layout
        return None if layout is None else str(layout.root)

    @property
    def located(self) -> LocatedExperiment:
        """The experiment as of the last look, for an order to its run."""
        return self._experiment

    def look(self) -> Change:
        """Read what is new: costs a stat of the journal if nothing is. It looks every 0.4 s at
        most, in storage every 5 s, and otherwise returns the state of the last look.

        Raises ExperimentNotFound once the experiment has been deleted, StorageError, OSError; the
        state before stays.
        """
        with self._looking:
            pause_s = INTERVAL_STORAGE_S if self._is_stored else _HERE_S
            if self._clock() - self._looked_at >= pause_s:
                self._looked_at = self._clock()
                if self._history is None:
                    self._scan()
                self._read_news()
                with self._lock:
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
            return self._entries.columns(self._began_at)

    def changed_since(self, version: int) -> dict[str, Any] | None:
        """The event `trials`: those that have changed since this version, perhaps none.

        None if the page must read everything again (the event `reset`): the version is of another
        run of this name, or of records that no longer exist.
        """
        with self._lock:
            if not self._reset_at <= version <= self._entries.version:
                return None
            found = list(self._entries.changed_since(version, self._began_at))
            return {"version": self._entries.version, "trials": found}

    def rows(
        self, trials: Sequence[tuple[str, int]], metrics: Sequence[str], points: int
    ) -> dict[str, Any]:
        """The answer of api/e/KEY/rows; each trial's id with the iteration after which rows are
        wanted (0: all). A trial whose rows cannot be read is in `missing`, and no error."""
        names = list(dict.fromkeys(metrics))[:_MOST_METRICS]
        points = min(max(points, _FEWEST_POINTS), _MOST_POINTS)
        wanted: list[tuple[Trial, Wanted, list[Point]]] = []
        began: dict[str, list[dict[str, Any]]] = {}
        missing: dict[str, str] = {}
        with self._lock:
            read = self._experiment.read
            for trial_id, after in list(dict(trials).items())[:_MOST_TRIALS]:
                trial = self._machine.trials.get(trial_id)
                if trial is None:
                    missing[trial_id] = f"there is no trial {trial_id}"
                    continue
                # What was cut off since is answered by no rows from there on.
                after = min(max(after, 0), trial.iteration)
                asked = Wanted(metrics=names, after=after, points=points)
                wanted.append((trial, asked, self._folding.recent.points(trial_id, names)))
                if self._history is not None:
                    began[trial_id] = starts(self._history.attempts_of(trial_id))
        found: dict[str, Any] = {}
        for trial, curve in read_curves(
            wanted,
            lambda trial: TrialFolder.of(trial.spec, read.location, read.layout),
            is_stored=read.layout is None,
        ):
            if isinstance(curve, str):
                missing[trial.trial_id] = curve
            else:
                restarts = began.get(trial.trial_id, [])
                found[trial.trial_id] = {**curve.plain(), "starts": restarts}
        return {"trials": found, "missing": missing}

    def trial(self, trial_id: str) -> dict[str, Any]:
        """The answer of api/e/KEY/t/ID."""
        with self._looking:
            if self._history is None:
                self._scan()
        experiment, trial = self._named(trial_id)
        with self._lock:
            history = self._history
            attempts = [] if history is None else list(history.attempts_of(trial_id))
        return trial_plain(experiment, trial, attempts, now=self._now())

    def log(self, trial_id: str, name: str, offset: int) -> dict[str, Any]:
        """The answer of api/e/KEY/t/ID/log/NAME."""
        return read_log(*self._named(trial_id), name, offset)

    def artifact(self, trial_id: str, path: str) -> Download:
        """A file of the trial, by its path in the trial's folder."""
        return artifact(*self._named(trial_id), path)

    def checkpoint_tar(self, trial_id: str, dirname: str) -> Download:
        """A checkpoint of the trial as a tar archive."""
        return checkpoint_tar(*self._named(trial_id), dirname)

    def _named(self, trial_id: str) -> tuple[LocatedExperiment, Trial]:
        with self._lock:
            trial = self._machine.trials.get(trial_id)
            if trial is None:
                raise NotThere(f"there is no trial {shown(trial_id)}")
            return self._experiment, trial

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
            name = self._machine.spec.scheduler
            trials = list(self._machine.trials.values())
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
        return {"scheduler": name, "visits": visits, "takeovers": takeovers}

    @property
    def _machine(self) -> Machine:
        return self._folding.machine

    @property
    def _is_stored(self) -> bool:
        return self._experiment.read.layout is None

    def _journal_of(self, experiment: LocatedExperiment) -> Path:
        layout = experiment.read.layout
        return (layout or Layout(self._kept.root)).journal

    def _began_at(self, trial_id: str) -> float | None:
        return None if self._history is None else self._history.began_at(trial_id)

    # -- reading ------------------------------------------------------------------------------

    def _read_news(self) -> None:
        try:
            if self._is_stored:
                self._refresh_stored()
            news = [] if self._fault else list(self._tail.news())
            if news:
                self._apply(news)
        except (JournalReplaced, AnotherBegins):
            self._load()
        except UnreadableRecord as error:  # of a newer version, or damaged: what is known stays
            self._fault = str(error)
            notices = (*self._experiment.read.notices, self._fault)
            read = replace(self._experiment.read, notices=notices)
            self._experiment = replace(self._experiment, read=read)
            self._is_dirty = True
        self._refresh_condition()

    def _apply(self, news: Sequence[tuple[bytes, Position]]) -> None:
        history = self._history
        with self._lock:
            folded = self._folding.apply(
                news, (lambda payload: None) if history is None else history.hear
            )
            trials = self._machine.trials if folded.is_all else folded.changed
            self._entries.update(self._machine, list(trials), is_live=self._is_live)
            self._is_dirty |= bool(folded.reports) or folded.is_more
            if folded.is_more:
                self._holder_at = 0.0  # perhaps the run has ended
            self._count(folded.reports)

    def _count(self, reports: int) -> None:
        at = self._clock()
        self._rate.append((at, reports))
        while self._rate and self._rate[0][0] < at - _RATE_S:
            self._rate.popleft()

    @property
    def _reports_per_s(self) -> float | None:
        """None until a while has been watched."""
        at = self._clock()
        known = [(when, count) for when, count in self._rate if when >= at - _RATE_S]
        if not known:
            return 0.0 if at - self._loaded_at >= _RATE_S else None
        return sum(count for _, count in known) / max(1.0, min(_RATE_S, at - self._loaded_at))

    def _refresh_stored(self) -> None:
        """Download new records. Raises JournalReplaced, StorageError."""
        location = self._experiment.read.location
        head = published_as(location)
        if head is None or head == self._head:
            return
        self._kept.refresh(location)
        self._head = head
        self._experiment = replace(self._experiment, heard_at=head.modified)
        begins = find_beginning(self._journal_of(self._experiment))
        if begins is None or begins.spec.experiment_id != self._machine.spec.experiment_id:
            raise JournalReplaced

    def _refresh_condition(self) -> None:
        """Whether a process runs it: ask the lock every 2 s, and after the end of a trial."""
        layout = self._experiment.read.layout
        at = self._clock()
        if layout is not None and at - self._holder_at >= _HOLDER_S:
            self._holder_at = at
            holder = "" if self._experiment.read.is_followed else current_holder(layout.lock)
            if holder != self._experiment.holder:
                self._experiment = replace(self._experiment, holder=holder)
                self._is_dirty = True
        is_live = self._experiment.condition(self._now()) is Condition.LIVE
        if is_live == self._is_live:
            return
        if not is_live and self._tail.rest_bytes:
            self._load()  # the notices say what cannot be read
            return
        with self._lock:
            self._is_live, self._is_dirty = is_live, True
            unfinished = [
                t.trial_id for t in self._machine.trials.values() if not t.status.is_final
            ]
            self._entries.update(self._machine, unfinished, is_live=is_live)

    def _load(self) -> None:
        """Read the experiment as a whole. Raises what `find` raises."""
        found = self._find(self._kept)
        is_stored = found.read.layout is None
        head = published_as(found.read.location) if is_stored else None
        end = found.read.end or Position()
        tail = JournalTail(self._journal_of(found), end, is_download=is_stored)
        with self._lock:
            before = getattr(self, "_folding", None)
            if before is not None and not _continues(before.machine, found.machine):
                self._entries = Entries(max(self._entries.version + 1, int(self._now() * 1_000)))
                self._reset_at = self._entries.version
            self._experiment, self._tail, self._head = found, tail, head
            self._folding = Folding(found.machine)
            self._summarizer = Summarizer(found.machine)
            self._causes = Causes()
            self._history, self._fault, self._is_dirty = None, "", True
            self._holder_at = self._loaded_at = self._clock()
            self._rate.clear()
            self._is_live = found.condition(self._now()) is Condition.LIVE
            trials = list(found.machine.trials)
            self._entries.update(found.machine, trials, is_live=self._is_live)

    def _scan(self) -> None:
        """Read the attempts and the timeline from the whole journal. Only the thread that looks
        moves the end of the journal, so this needs no lock."""
        history = History()
        journal = self._journal_of(self._experiment)
        hear_journal(journal, self._experiment.read.begins, self._tail.end, history)
        self._history, self._is_dirty = history, True

    def _refresh_facts(self) -> None:
        """Compute the facts again if they have changed, but use at most a twentieth of a core."""
        at = self._clock()
        is_old = self._is_live and at - self._facts_at >= _FACTS_S
        if at < self._facts_due_at or not (self._is_dirty or is_old):
            return
        used_s, now = self._cpu(), self._now()
        experiment, history = self._experiment, self._history
        summary = summary_of(self._summarizer, experiment, now=now)
        state = experiment.condition(now)
        why = why_not(experiment)
        told = (
            []
            if history is None
            else timeline_of(history, self._machine, state, experiment.outcome.states())
        )
        self._facts = {
            "key": self.key,
            **facts_of(
                experiment,
                self._entries,
                summary,
                now=now,
                reports_per_s=self._reports_per_s,
                failures=self._causes.plain(self._machine, history),
            ),
            "steering": {"possible": not why, "why_not": why},
            "timeline": told,
            "concurrency": [] if history is None else concurrency(history),
        }
        self._is_dirty, self._facts_at = False, at
        self._facts_version = max(self._facts_version + 1, int(now * 1_000))
        self._facts_due_at = at + PAUSE_PER_CPU_S * (self._cpu() - used_s)


def _continues(before: Machine, after: Machine) -> bool:
    """Whether it is the same run, and no trial is missing that was there before."""
    is_same = before.spec.experiment_id == after.spec.experiment_id
    return is_same and before.trials.keys() <= after.trials.keys()
