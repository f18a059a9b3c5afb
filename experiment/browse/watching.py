"""`holdfast show --watch`: reads an experiment again and again until no process runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from holdfast.dataclass import dataclass
from holdfast.experiment.browse.condition import Condition, counts
from holdfast.experiment.browse.following import INTERVAL_STORAGE_S, PAUSE_PER_CPU_S
from holdfast.experiment.browse.locate import LocatedExperiment, published_as
from holdfast.experiment.progress.summarizer import leader
from holdfast.experiment.results.read_experiment import RunStarts
from holdfast.syncer.errors import StorageError
from holdfast.syncer.journal.journal import segments
from holdfast.syncer.journal.stretches import segment_size
from holdfast.syncer.uploader.lock import current_holder

# A look at this machine costs some 10 ms with a few trials, and 1 s with 10,000.
_HERE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The experiment as it was just read. `is_new`: it differs from the view before in more than
    its age."""

    experiment: LocatedExperiment
    condition: Condition
    is_new: bool


class Watcher:
    """Yields views of an experiment.

    `find` reads the experiment. `wait` is called with a number of seconds, `tell` with a line for
    the user. `clock` and `cpu` return seconds since any fixed start, `now` since 1970.
    """

    def __init__(
        self,
        find: Callable[[], LocatedExperiment],
        interval_s: float | None,
        *,
        wait: Callable[[float], None],
        tell: Callable[[str], None],
        cpu: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        self._find = find
        self._interval_s = interval_s
        self._wait = wait
        self._tell = tell
        self._cpu = cpu
        self._now = now
        self._told: set[str] = set()
        self._known: LocatedExperiment | None = None
        self._mark: object = None
        self._shown: object = None

    def views(self) -> Iterator[View]:
        """The last one is that of an experiment that no process runs.

        Retries while storage does not answer. Raises what `find` raises at the first look, and
        ExperimentNotFound once the experiment has been deleted.
        """
        while True:
            used_s = self._cpu()
            view = self._look()
            if view is not None:
                yield view
                if view.condition is not Condition.LIVE:
                    return
            self._wait(max(self._pause_s(), PAUSE_PER_CPU_S * (self._cpu() - used_s)))

    def _look(self) -> View | None:
        try:
            self._refresh()
        except RunStarts as error:
            self._say(error.state)
            return None
        except (StorageError, OSError) as error:
            if self._known is None:
                raise
            self._say(f"{error}. Retrying")
            return None
        self._told.clear()
        assert self._known is not None
        condition = self._known.condition(self._now())
        shown = _shown(self._known, condition)
        is_new, self._shown = shown != self._shown, shown
        return View(experiment=self._known, condition=condition, is_new=is_new)

    def _refresh(self) -> None:
        """Read the records again, if there are new ones."""
        mark = None if self._known is None else _mark_of(self._known)
        if mark is None or mark != self._mark:
            self._known = self._find()
            self._mark = mark

    def _pause_s(self) -> float:
        if self._interval_s is not None:
            return self._interval_s
        is_stored = self._known is not None and self._known.read.layout is None
        return INTERVAL_STORAGE_S if is_stored else _HERE_S

    def _say(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._tell(text)


def _mark_of(experiment: LocatedExperiment) -> object:
    """Changes with each record. Raises StorageError, OSError."""
    layout = experiment.read.layout
    if layout is None:
        return published_as(experiment.read.location)
    newest = max(segments(layout.journal), default=0)
    return newest, segment_size(layout.journal, newest), current_holder(layout.lock)


def _shown(experiment: LocatedExperiment, condition: Condition) -> object:
    """What a reader sees change, without the ages."""
    machine = experiment.machine
    best = leader(machine.trials.values(), machine.spec.metric, machine.spec.mode)
    return (
        condition,
        counts(machine),
        sum(trial.iteration for trial in machine.trials.values()),
        None if best is None else (best.trial_id, best.iteration),
        machine.epoch,
        experiment.read.run,
    )
