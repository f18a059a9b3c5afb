"""`holdfast logs --follow`: streams a trial's output, here or in storage, until the trial ends.

The follower reads the records before the file, and a run uploads the file before the records. So
when the records say that the trial has ended, all of its output has been read. Only a node sends
the output of its trials by itself: the follower waits for the publication after the trial's end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from holdfast.dataclass import dataclass
from holdfast.experiment.browse.condition import Condition, sync_period_s
from holdfast.experiment.browse.locate import LocatedExperiment, published_as
from holdfast.experiment.browse.logs import piece_from, sender_of
from holdfast.syncer.errors import StorageError
from holdfast.syncer.stores.store import ObjectInfo
from holdfast.trial.trial import Trial

# Reading a file on this machine takes 20 us; reading an object is a request that costs money.
INTERVAL_HERE_S = 0.5
INTERVAL_STORAGE_S = 5.0
# A node has uploaded a trial's output so long after it was ordered to.
_ARRIVES_S = 3.0
# Reading the records of 10,000 trials takes a second of CPU time: use at most a twentieth of a
# core.
PAUSE_PER_CPU_S = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LogState:
    """`has_ended`: the trial writes no more output. `has_begun`: it has had an attempt. `sender`:
    the node that sends its output to storage every `period_s`; "" if it runs where its files
    are."""

    has_ended: bool
    has_begun: bool
    condition: Condition
    sender: str = ""
    period_s: float = 0.0


class LogSource(Protocol):
    """A growing file, and the records that say whether it still grows.

    Both methods raise StorageError and OSError.
    """

    def read_state(self) -> LogState: ...

    def read(self, offset: int) -> tuple[int, bytes] | None:
        """The size of the file and some of its bytes from `offset` on; None if there is no
        file."""
        ...


class TrialLog:
    """A file in a trial's folder, read where the experiment's records are newest.

    `find` reads the experiment again. `now` returns the time in seconds since 1970.
    """

    def __init__(
        self,
        experiment: LocatedExperiment,
        trial: Trial,
        name: str,
        *,
        find: Callable[[], LocatedExperiment],
        now: Callable[[], float],
        rank: int = 0,
    ) -> None:
        self._experiment = experiment
        self._trial = trial
        self._name = name
        self._rank = rank
        self._find = find
        self._now = now
        self._published: ObjectInfo | None = None
        self._final_at: float | None = None

    def read_state(self) -> LogState:
        self._refresh()
        condition = self._experiment.condition(self._now())
        is_over = condition in (Condition.FINISHED, Condition.ERRORED)
        trial = self._experiment.machine.trials.get(self._trial.trial_id)
        is_final = trial is None or (
            trial.status.is_final and not self._may_grow(trial, condition)
        )
        return LogState(
            # If the trial is not known, another experiment of this name has begun.
            has_ended=is_final or is_over,
            has_begun=trial is not None and trial.attempt > 0,
            condition=condition,
            sender="" if trial is None else sender_of(trial, self._rank),
            period_s=sync_period_s(self._experiment.machine),
        )

    def _may_grow(self, trial: Trial, condition: Condition) -> bool:
        """Whether the node of a trial that has ended may not have sent all of its output yet."""
        if not trial.place.nodes or condition is not Condition.LIVE:
            return False
        now = self._now()
        if self._final_at is None:
            self._final_at = now
        return now - self._final_at < sync_period_s(self._experiment.machine) + _ARRIVES_S

    def read(self, offset: int) -> tuple[int, bytes] | None:
        return piece_from(self._experiment, self._trial, self._name, offset)

    def _refresh(self) -> None:
        """Read the records again; from storage only if it has a new publication."""
        in_storage = self._experiment.read.layout is None
        published = published_as(self._experiment.read.location) if in_storage else None
        if published is None or published != self._published:
            self._experiment = self._find()
            self._published = published


class Follower:
    """Yields the content of a file, and what is appended later.

    `wait` is called with a number of seconds, `tell` with a line for the user. `clock` and `cpu`
    return seconds since any fixed start; `cpu` is the CPU time of this process.
    """

    def __init__(
        self,
        source: LogSource,
        interval_s: float,
        *,
        wait: Callable[[float], None],
        tell: Callable[[str], None],
        clock: Callable[[], float],
        cpu: Callable[[], float],
    ) -> None:
        self._source = source
        self._interval_s = interval_s
        self._wait = wait
        self._tell = tell
        self._clock = clock
        self._cpu = cpu
        self._offset = 0
        self._told: set[str] = set()
        self.found_file = False

    def news(self) -> Iterator[bytes]:
        """The content that has not been returned yet. Raises StorageError, OSError."""
        while (grown := self._source.read(self._offset)) is not None:
            self.found_file = True
            size, piece = grown
            if size < self._offset:
                self._tell("the file is now shorter than before: showing it from its beginning")
                self._offset = 0
                continue
            if not piece:
                return
            self._offset += len(piece)
            yield piece

    def until_ended(self) -> Iterator[bytes]:
        """The content until the trial has ended. Retries while storage does not answer.

        Raises ExperimentNotFound if the experiment has been deleted.
        """
        next_state_at = self._clock()
        has_ended, waited_for = False, ""
        while not has_ended:
            try:
                if self._clock() >= next_state_at:
                    used_s = self._cpu()
                    state = self._source.read_state()
                    has_ended, waited_for = state.has_ended, _waited_for(state)
                    next_state_at = self._clock() + PAUSE_PER_CPU_S * (self._cpu() - used_s)
                yield from self.news()
            except (StorageError, OSError) as error:
                has_ended = False
                self._say(f"{error}. Retrying")
            else:
                self._say(waited_for)
            if not has_ended:
                self._wait(self._interval_s)

    def _say(self, text: str) -> None:
        """Show a message once; "" means that all is well again."""
        if not text:
            self._told.clear()
        elif text not in self._told:
            self._told.add(text)
            self._tell(text)


def _waited_for(state: LogState) -> str:
    if state.has_ended:
        return ""
    if state.condition is Condition.INTERRUPTED:
        return "no process runs the experiment: waiting for a restore (Ctrl-C ends this)"
    if not state.has_begun:
        return "the trial has not begun: waiting until it does"
    if not state.sender:
        return ""
    return (
        f"the trial runs on node {state.sender}, which sends its output every {state.period_s:g} s"
    )
