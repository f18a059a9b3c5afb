"""One experiment that is read once and then followed: the answers of its page."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from math import inf
from typing import Any, Final

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.trial_folder import TrialFolder
from holdfast.experiment.progress.summarizer import Summarizer
from holdfast.experiment.records.view import ExperimentView
from holdfast.names import shown
from holdfast.plain_numbers import finite_number
from holdfast.results.following import INTERVAL_STORAGE_S, PAUSE_PER_CPU_S, Followed
from holdfast.results.page.entries import Entries, json_value
from holdfast.results.page.facts import Causes, facts_of, summary_of
from holdfast.results.page.history import concurrency, starts, timeline_of
from holdfast.results.page.rows import (
    CheckpointValues,
    Point,
    Recent,
    Wanted,
    read_curves,
)
from holdfast.results.page.trial_files import Download as Download
from holdfast.results.page.trial_files import NotThere as NotThere
from holdfast.results.page.trial_files import artifact, checkpoint_tar
from holdfast.results.page.trial_page import checkpoint_goal, read_log, trial_plain
from holdfast.results.reading import KeptRecords
from holdfast.results.result_grid import outcome_of, results_of
from holdfast.results.steering_client import why_not
from holdfast.scheduler.events import Event
from holdfast.scheduler.machine import Machine
from holdfast.trial.events import Reported, Started
from holdfast.trial.trial import Trial

# The least time between two looks at this machine. A page is at most 1 s behind a report.
_HERE_S: Final = 0.4
# A live run's remaining time changes without a record.
_FACTS_S: Final = 5.0
# The pause between two computations of the facts, in times of their CPU: 20 ms for 10,000 trials.
_CALM_PER_CPU_S: Final = 200
# So long after an answer with a gap the rows in it are sent again.
_GAP_S: Final = 60.0
# But only as often: each time reads the trial's files.
_GAP_AGAIN_S: Final = 5.0
# The reports of so many seconds give their rate.
_RATE_S: Final = 10.0
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
        find: Callable[[KeptRecords], ExperimentView],
        *,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.thread_time,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Raises what `find` raises."""
        self.key = key
        self._clock, self._cpu, self._now = clock, cpu, now
        self._looking = threading.Lock()
        self._recent = Recent()
        self._followed = Followed(find, clock=clock, now=now, on_event=self._on_event)
        # Who reads the machine, or what is made of it, holds it.
        self._lock = self._followed.lock
        self._looked_at = clock()
        # Pages with an earlier version must read everything again.
        self._reset_at = int(now() * 1_000)
        self._entries = Entries(self._reset_at)
        self._machine: Machine | None = None
        self._rate: deque[tuple[float, int]] = deque()
        self._loaded_at = 0.0
        self._is_dirty = True
        self._facts: dict[str, Any] = {}
        self._facts_version = 0
        self._facts_at = self._facts_due_at = self._facts_calm_at = 0.0
        self._facts_signs: tuple[object, ...] = ()
        self._summarized: tuple[Machine, Summarizer, Causes] | None = None
        self._gaps: dict[str, tuple[int, float, float]] = {}
        # By metric: the version, when it may be computed again, and the answer.
        self._importances: dict[str, tuple[int, float, dict[str, Any]]] = {}
        self._values = CheckpointValues()
        self._take_news()
        with self._lock:
            self._refresh_facts()

    def close(self) -> None:
        """Forget what was downloaded."""
        self._followed.close()

    @property
    def version(self) -> int:
        return self._entries.version

    @property
    def located(self) -> ExperimentView:
        """The experiment as of the last look, for an order to its run."""
        return self._followed.view

    def look(self, *, at_once: bool = False) -> Change:
        """Read what is new: costs a stat of the journal if nothing is. It looks every 0.4 s at
        most, in storage every 5 s, and otherwise returns the state of the last look, unless
        `at_once`.

        Raises ExperimentNotFound once the experiment has been deleted, StorageError, OSError; the
        state before stays.
        """
        with self._looking:
            pause_s = INTERVAL_STORAGE_S if self._followed.is_stored else _HERE_S
            if at_once or self._clock() - self._looked_at >= pause_s:
                self._looked_at = self._clock()
                try:
                    self._followed.look()
                finally:
                    self._take_news()
                with self._lock:
                    self._refresh_facts()
            return Change(
                version=self._entries.version,
                facts=self._facts_version,
                is_live=self._followed.is_live,
            )

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Reported):
            self._recent.add(event)
        elif isinstance(event, Started):
            machine = self._followed.machine
            self._recent.roll_back(event.trial_id, machine.trials[event.trial_id].resumed_from)

    def _take_news(self) -> None:
        """Bring the table of trials up to date."""
        news, machine, at = self._followed.take_news(), self._followed.machine, self._clock()
        if news.is_loaded:
            self._recent = Recent()
            if not machine.finished:  # else the files have all rows
                for event in self._followed.newest_events():
                    if isinstance(event, Reported) and event.trial_id in machine.trials:
                        self._recent.add(event)
        with self._lock:
            if news.is_loaded:
                self._on_loaded(machine)
            changed = list(machine.trials)
            if not news.is_all:  # new ones in the order of their numbers
                changed = sorted(news.changed, key=lambda one: machine.trials[one].spec.index)
            self._entries.update(machine, changed, is_live=self._followed.is_live)
        self._is_dirty |= bool(news.reports) or news.is_more
        self._rate.append((at, news.reports))
        while self._rate[0][0] < at - _RATE_S:
            self._rate.popleft()

    def _on_loaded(self, machine: Machine) -> None:
        if self._machine is not None and not _continues(self._machine, machine):
            self._entries = Entries(max(self._entries.version + 1, int(self._now() * 1_000)))
            self._reset_at = self._entries.version
            self._facts_due_at = 0.0  # no fact of the run before is shown
        self._machine, self._loaded_at = machine, self._clock()
        self._rate.clear()

    def _reports_per_s(self) -> float | None:
        """Over the last 10 s; None until a while has been watched."""
        at = self._clock()
        watched_s = at - self._loaded_at
        known = [count for when, count in self._rate if when >= at - _RATE_S]
        if watched_s < _RATE_S and not any(known):
            return None
        return sum(known) / max(1.0, min(_RATE_S, watched_s))

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
            entries = self._entries
            if not self._reset_at <= version <= entries.version:
                return None
            found = list(entries.changed_since(version))
            return {"version": entries.version, "trials": found}

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
            read = self.located
            for trial_id, after in dict(trials).items():
                trial = read.machine.trials.get(trial_id)
                if trial is None or len(wanted) >= _MOST_TRIALS:
                    missing[trial_id] = (
                        f"there is no trial {shown(trial_id)}"
                        if trial is None
                        else f"ask for at most {_MOST_TRIALS} trials at once"
                    )
                    continue
                # What was cut off since is answered by no rows from there on.
                after = int(min(max(after, 0), trial.iteration, self._complete_to(trial_id)))
                asked = Wanted(metrics=names, after=after, points=points)
                wanted.append((trial, asked, self._recent.points(trial_id, names, after)))
                began[trial_id] = starts(trial)
        found: dict[str, Any] = {}
        for trial, curve in read_curves(
            wanted,
            lambda trial: TrialFolder.of(trial.spec, read.location, read.layout),
            is_stored=read.layout is None,
        ):
            if isinstance(curve, str):
                missing[trial.trial_id] = curve
                continue
            if curve.gap is not None:
                _, _, due_at = self._gaps.get(trial.trial_id, (0, 0.0, 0.0))
                self._gaps[trial.trial_id] = curve.gap, self._clock() + _GAP_S, due_at
            found[trial.trial_id] = {**curve.plain(), "starts": began[trial.trial_id]}
        return {"trials": found, "missing": missing}

    def trial(self, trial_id: str) -> dict[str, Any]:
        """The answer of api/e/KEY/t/ID."""
        experiment, trial = self._named(trial_id)
        values = self._checkpoint_values(experiment, trial)
        return trial_plain(experiment, trial, now=self._now(), values=values)

    def _checkpoint_values(
        self, experiment: ExperimentView, trial: Trial
    ) -> Mapping[int, float | None]:
        metric, _ = checkpoint_goal(experiment.machine.spec)
        if metric is None:
            return {}
        read = experiment

        def seen(after: int) -> list[Point]:
            with self._lock:
                return self._recent.points(trial.trial_id, [metric], after)

        def folder(trial: Trial) -> TrialFolder:
            return TrialFolder.of(trial.spec, read.location, read.layout)

        return self._values.of(trial, metric, folder, seen)

    def log(self, trial_id: str, name: str, offset: int) -> dict[str, Any]:
        """The answer of api/e/KEY/t/ID/log/NAME."""
        return read_log(*self._named(trial_id), name, offset)

    def artifact(self, trial_id: str, path: str) -> Download:
        """A file of the trial, by its path in the trial's folder."""
        return artifact(*self._named(trial_id), path)

    def checkpoint_tar(self, trial_id: str, dirname: str) -> Download:
        """A checkpoint of the trial as a tar archive."""
        return checkpoint_tar(*self._named(trial_id), dirname)

    def importance(self, metric: str) -> dict[str, Any]:
        """The answer of api/e/KEY/importance. Raises InvalidConfig if it cannot be computed, with
        the reason."""
        at = self._clock()
        with self._lock:
            version, known = self._entries.version, self._importances.get(metric)
            if known is not None and (known[0] == version or at < known[1]):
                return known[2]
            experiment = self._followed.as_it_is()
        used_s = self._cpu()
        # Without a line in the log, which is the terminal of `holdfast web` and of a run.
        found = results_of(experiment).plot.weighed(metric, params=None, algorithm="rank")
        answer: dict[str, Any] = json_value(asdict(found))
        due_at = at + PAUSE_PER_CPU_S * (self._cpu() - used_s)
        with self._lock:
            if len(self._importances) >= _MOST_METRICS:
                self._importances.clear()
            self._importances[metric] = version, due_at, answer
        return answer

    def scheduler(self) -> Mapping[str, Any]:
        """The answer of api/e/KEY/scheduler."""
        with self._lock:
            machine = self._followed.as_it_is().machine
            takeovers = self._facts["takeovers"]
        visits = [
            {
                "trial_id": trial.trial_id,
                **asdict(visit),
                "value": finite_number(visit.value),
                "cutoff": finite_number(visit.cutoff),
            }
            for trial in machine.trials.values()
            for visit in trial.rungs
        ]
        return {"scheduler": machine.spec.scheduler, "visits": visits, "takeovers": takeovers}

    def _named(self, trial_id: str) -> tuple[ExperimentView, Trial]:
        with self._lock:
            trial = self._followed.machine.trials.get(trial_id)
            if trial is None:
                raise NotThere(f"there is no trial {shown(trial_id)}")
            return self._followed.as_it_is(), trial

    def _complete_to(self, trial_id: str) -> float:
        """The iteration up to which a page has all rows of a trial: an answer with a gap was given
        before the projector had written the rows in it."""
        gap, until, due_at = self._gaps.get(trial_id, (0, 0.0, 0.0))
        at = self._clock()
        if at >= until:
            self._gaps.pop(trial_id, None)
            return inf
        if at < due_at:
            return inf
        self._gaps[trial_id] = gap, until, at + _GAP_AGAIN_S
        return gap

    def _refresh_facts(self) -> None:
        """Compute the facts again if they have changed, but use at most a two-hundredth of a core:
        a twentieth if something has happened that is not only a trial's progress."""
        at, experiment, is_live = self._clock(), self.located, self._followed.is_live
        is_old = is_live and at - self._facts_at >= _FACTS_S
        if at < self._facts_due_at or not (self._is_dirty or is_old):
            return
        happened = experiment.machine.happened[-1:]
        signs = is_live, experiment.holder, happened, self._reset_at
        if at < self._facts_calm_at and signs == self._facts_signs:
            return
        self._facts_signs = signs
        used_s, now = self._cpu(), self._now()
        machine, summarizer, causes = self._summarizer()
        summary = summary_of(summarizer, experiment, now=now)
        state, why = experiment.condition(now), why_not(experiment)
        self._facts = {
            "key": self.key,
            **facts_of(
                experiment,
                self._entries,
                summary,
                now=now,
                reports_per_s=self._reports_per_s(),
                failures=causes.plain(machine),
            ),
            "steering": {"possible": not why, "why_not": why},
            "timeline": timeline_of(machine, state, lambda: outcome_of(experiment).states()),
            "concurrency": concurrency(machine.trials.values()),
        }
        self._is_dirty, self._facts_at = False, at
        self._facts_version = max(self._facts_version + 1, int(now * 1_000))
        cost_s = self._cpu() - used_s
        self._facts_due_at = at + PAUSE_PER_CPU_S * cost_s
        self._facts_calm_at = at + _CALM_PER_CPU_S * cost_s

    def _summarizer(self) -> tuple[Machine, Summarizer, Causes]:
        """The objects that remember the ended trials of the machine, so that each is read once."""
        machine = self._followed.machine
        if self._summarized is None or self._summarized[0] is not machine:
            self._summarized = machine, Summarizer(machine), Causes()
        return self._summarized


def _continues(before: Machine, after: Machine) -> bool:
    """True if it is the same run, and no trial is missing that was there before."""
    is_same = before.spec.experiment_id == after.spec.experiment_id
    return is_same and before.trials.keys() <= after.trials.keys()
