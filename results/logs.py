"""`holdfast logs`: a trial's output, once or as it grows.

A node sends the output of its trials to storage with each publication. So the output of a trial
that runs on a node is there, also if the experiment runs on this machine.

A follower reads the records before the file, and a run uploads the file before the records. So
when the records say that the trial has ended, all of its output has been read. Only a node sends
the output of its trials by itself: the follower waits for the publication after the trial's end.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from holdfast.experiment.folder.layout import ERROR, Layout, log_names_of, rank_log
from holdfast.experiment.folder.trial_folder import TrialFolder
from holdfast.experiment.records.place import read_mirror
from holdfast.experiment.records.view import Condition, ExperimentView, sync_period_s
from holdfast.names import listed
from holdfast.results.following import PAUSE_PER_CPU_S, Followed
from holdfast.scheduler.events import ExperimentSpec
from holdfast.syncer.checkpoint.download import with_store
from holdfast.syncer.errors import StorageError
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.trial import Trial

_SHOWN_IDS = 10


class NoSuchTrial(InvalidConfig):
    """The name given matches no trial, or more than one."""


class NoSuchLog(InvalidConfig):
    """The trial has no file of this name, here or in storage."""


def log_names(spec: ExperimentSpec) -> tuple[str, ...]:
    """The files of a trial's output: stdout and stderr, or one file for both."""
    return tuple(dict.fromkeys(log_names_of(spec.options.get("log_to_file", False))))


def log_name(spec: ExperimentSpec, stream: str, rank: int) -> str:
    """The file of a rank's stream, "stdout" or "stderr"."""
    out, err = log_names_of(spec.options.get("log_to_file", False))
    name = out if stream == "stdout" else err
    return rank_log(name, rank) if rank else name


def layout_of(experiment: ExperimentView, trial: Trial, name: str) -> Layout | None:
    """The tree on this machine that has the newest content of this file of the trial; None if
    storage has it."""
    if not experiment.reads_storage or experiment.layout is None or name == ERROR:
        return experiment.layout
    on_nodes = trial.place.nodes or (experiment.machine.cluster and not trial.attempt)
    return None if on_nodes else experiment.layout


def check_reachable(experiment: ExperimentView, trial: Trial, name: str) -> None:
    """Raise NoSuchLog if a node sends the file to a storage that the user has not named."""
    layout = experiment.layout
    if layout is None or name == ERROR or not trial.place.nodes:
        return
    if str(layout.root) != experiment.location.local_path:
        return
    if (note := read_mirror(layout)) is not None:
        raise NoSuchLog(
            f"trial {trial.trial_id} has run on node {trial.place.node}, which sends its output "
            f"to {note}: pass the URI of the experiment there"
        )


def place_of(experiment: ExperimentView, trial: Trial, name: str) -> str:
    """The path of a file of the trial, or its URI without credentials."""
    layout = layout_of(experiment, trial, name)
    if layout is not None:
        return str(layout.trial(trial.spec) / name)
    return experiment.location.child(f"{trial.spec.dirname}/{name}").public


def sender_of(trial: Trial, rank: int = 0) -> str:
    """The node from which the output of this trial comes, while it may have more; "" for none."""
    nodes = () if trial.status.is_final else trial.place.nodes
    return "" if not nodes else ", ".join(nodes) if rank else nodes[0]


def stored_at(experiment: ExperimentView, trial: Trial, name: str) -> float | None:
    """When the newest content of this file came, in seconds since 1970, by the clock of its place;
    None if there is no such file, or that is not known. Raises StorageError, OSError."""
    folder = folder_of(experiment, trial, name)
    if folder.local is not None:
        with suppress(FileNotFoundError):
            return os.stat(folder.local / name).st_mtime
        return None
    found = with_store(folder.location, lambda store: store.head(name))
    return None if found is None else found.modified


def trial_named(experiment: ExperimentView, name: str) -> Trial:
    """The trial with this id, number, name or folder, or the only one whose id begins or ends so.

    Raises NoSuchTrial.
    """
    trials = list(experiment.machine.trials.values())
    for trial in trials:
        spec = trial.spec
        if name in (spec.trial_id, str(spec.index), spec.name, spec.dirname.rstrip("/")):
            return trial
    alike = [t for t in trials if t.trial_id.startswith(name) or t.trial_id.endswith(name)]
    if len(alike) == 1:
        return alike[0]
    ids = [trial.trial_id for trial in alike or trials]
    shown = listed(ids, _SHOWN_IDS) or "none yet"
    fault = f"{name!r} matches several" if alike else f"there is no {name!r}"
    raise NoSuchTrial(f"which trial? {fault}: {shown}. Pass an id, or a number such as 0")


def written(experiment: ExperimentView, trial: Trial, name: str) -> Iterator[bytes]:
    """The bytes of a file in the trial's folder, in pieces.

    Reads the file from storage if it is not on this machine. Raises NoSuchLog, StorageError,
    OSError.
    """
    check_reachable(experiment, trial, name)
    for folder in (folder_of(experiment, trial, name).real(), stored_folder(experiment, trial)):
        if (found := folder.piece(name, 0, 0)) is not None:
            return folder.pieces(name, found[0])
    raise NoSuchLog(_not_written(experiment, trial, name))


def piece_from(
    experiment: ExperimentView, trial: Trial, name: str, offset: int
) -> tuple[int, bytes] | None:
    """The size of a file in the trial's folder, and some of its bytes from `offset` on.

    None if there is no such file yet. Raises StorageError, OSError.
    """
    return folder_of(experiment, trial, name).real().piece(name, offset)


def folder_of(experiment: ExperimentView, trial: Trial, name: str) -> TrialFolder:
    """The folder that has the newest content of this file of the trial: here, or in storage.
    Raises LeadsElsewhere."""
    if (layout := layout_of(experiment, trial, name)) is not None:
        return TrialFolder.of(trial.spec, experiment.location, layout)
    return stored_folder(experiment, trial)


def stored_folder(experiment: ExperimentView, trial: Trial) -> TrialFolder:
    """The trial's folder in the experiment's place, which may be a directory of this machine."""
    return TrialFolder.at(experiment.location.child(trial.spec.dirname)).real()


def last_lines(pieces: Iterable[bytes], count: int) -> bytes:
    """The last `count` lines of a stream of pieces of any length."""
    kept: deque[bytes] = deque(maxlen=count)
    begun = b""
    for piece in pieces:
        *whole, begun = (begun + piece).split(b"\n")
        kept.extend(line + b"\n" for line in whole)
    if begun:
        kept.append(begun)
    return b"".join(kept)


def _not_written(experiment: ExperimentView, trial: Trial, name: str) -> str:
    folder = place_of(experiment, trial, name).rpartition("/")[0]
    there = folder_of(experiment, trial, name).names()
    outputs = tuple(log_names(experiment.machine.spec))
    logs = [n for n in there if n.startswith(outputs) or n == ERROR]
    if name == ERROR and trial.error is None:
        return f"trial {trial.trial_id} has not failed: it has no {ERROR}"
    begun = "" if trial.attempt else ", because it has not begun"
    node = sender_of(trial)
    sent = f" Node {node}, where it runs, sends its output with each publication" if node else ""
    return (
        f"trial {trial.trial_id} has no file {name!r} in {folder}{begun}. Its output files: "
        f"{', '.join(logs) or 'none'}.{sent}"
    )


# Reading a file on this machine takes 20 us.
INTERVAL_HERE_S = 0.5
# A node has uploaded a trial's output so long after it was ordered to.
_ARRIVES_S = 3.0


class TrialLog:
    """A file in the folder of a trial, followed until the trial has ended.

    `wait` is called with a number of seconds, `tell` with a line for the user. `clock` and `cpu`
    return seconds since any fixed start (`cpu` is the CPU time of this process), `now` since 1970.
    """

    def __init__(
        self,
        followed: Followed,
        trial_id: str,
        name: str,
        interval_s: float,
        *,
        rank: int = 0,
        wait: Callable[[float], None],
        tell: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.process_time,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._followed, self._trial_id, self._name = followed, trial_id, name
        self._interval_s, self._rank = interval_s, rank
        self._wait, self._tell = wait, tell
        self._clock, self._cpu, self._now = clock, cpu, now
        self._offset = 0
        self._final_at: float | None = None
        self._told: set[str] = set()
        self.found_file = False

    def news(self) -> Iterator[bytes]:
        """The content that has not been returned yet. Raises StorageError, OSError."""
        while (grown := self._read()) is not None:
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
        next_look_at = self._clock()
        has_ended, waited_for = False, ""
        while not has_ended:
            try:
                if self._clock() >= next_look_at:
                    used_s = self._cpu()
                    self._followed.look()
                    has_ended, waited_for = self._state()
                    next_look_at = self._clock() + PAUSE_PER_CPU_S * (self._cpu() - used_s)
                yield from self.news()
            except (StorageError, OSError) as error:
                has_ended = False
                self._say(f"{error}. Retrying")
            else:
                self._say(waited_for)
            if not has_ended:
                self._wait(self._interval_s)

    @property
    def _trial(self) -> Trial | None:
        return self._followed.machine.trials.get(self._trial_id)

    def _read(self) -> tuple[int, bytes] | None:
        trial, view = self._trial, self._followed.view
        return None if trial is None else piece_from(view, trial, self._name, self._offset)

    def _state(self) -> tuple[bool, str]:
        """True if the trial writes no more output; else what it waits for, "" for nothing."""
        trial, machine = self._trial, self._followed.machine
        condition = self._followed.view.condition(self._now())
        if trial is None or condition in (Condition.FINISHED, Condition.ERRORED):
            return True, ""  # if it is not known, another experiment of this name has begun
        if trial.status.is_final and not self._may_grow(trial, condition):
            return True, ""
        if condition is Condition.INTERRUPTED:
            return (
                False,
                "no process runs the experiment: waiting for a restore (Ctrl-C ends this)",
            )
        if not trial.attempt:
            return False, "the trial has not begun: waiting until it does"
        if not (sender := sender_of(trial, self._rank)):
            return False, ""
        every_s = sync_period_s(machine)
        return (
            False,
            f"the trial runs on node {sender}, which sends its output every {every_s:g} s",
        )

    def _may_grow(self, trial: Trial, condition: Condition) -> bool:
        """True if the node of a trial that has ended may not have sent all of its output yet."""
        if not trial.place.nodes or condition is not Condition.LIVE:
            return False
        now = self._now()
        if self._final_at is None:
            self._final_at = now
        return now - self._final_at < sync_period_s(self._followed.machine) + _ARRIVES_S

    def _say(self, text: str) -> None:
        """Show a message once; "" means that all is well again."""
        if not text:
            self._told.clear()
        elif text not in self._told:
            self._told.add(text)
            self._tell(text)
