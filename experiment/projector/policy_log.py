"""The log of a policy: which trial was cloned from which, as JSON lines.

`pbt_global.txt` has all clonings; `pbt_policy_<trial_id>.txt` those in a trial's history: its own
newest, and above it those of the trials it was cloned from. A line is [tag, tag of the source,
iteration, iteration of the source's checkpoint, config of the source, new config].

Like all projected files, the log is written from the journal, and rewritten unless it is known to
be complete.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from holdfast.experiment.folder.layout import Layout, is_policy_log
from holdfast.experiment.projector.append_files import AppendFile
from holdfast.experiment.records.rows import encode, shown_config
from holdfast.scheduler.events import Event
from holdfast.scheduler.machine import Machine
from holdfast.scheduler.policy import CloneTrial, Decision
from holdfast.syncer.files.durable import remove_file, replace_file
from holdfast.syncer.files.tree import read_regular
from holdfast.trial.events import Reported
from holdfast.trial.trial import Origin


class PolicyLog:
    """Collects cloning decisions from events; `flush` writes them. Must see the experiment from
    its start."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._global = AppendFile(str(layout.policy_log))
        self._lines: dict[str, tuple[bytes, ...]] = {}
        self._waiting: list[bytes] = []
        self._changed: set[str] = set()
        self._adopted: frozenset[bytes] = frozenset()

    def adopt(self, machine: Machine) -> None:
        """Keep the existing lines: the records of some of them are lost."""
        self._waiting = _lines_of(self._layout.policy_log)
        self._adopted = frozenset(self._waiting)
        for trial_id in machine.trials:
            if lines := _lines_of(self._layout.policy_log_of(trial_id)):
                self._lines[trial_id] = tuple(lines)

    def take_in(self, event: Event, machine: Machine) -> None:
        """Process an event that `machine` has just handled."""
        for decision in _takeovers(machine.answers) if any(machine.answers) else ():
            trial = machine.trials[decision.trial_id]
            before = machine.moved.get(decision.trial_id, trial)
            if trial.origin is None or trial.origin is before.origin:
                continue  # the decision was not performed
            iteration = before.iteration
            if isinstance(event, Reported) and event.trial_id == trial.trial_id:
                iteration = event.iteration
            self._add(machine, decision, trial.origin, iteration)

    def _add(self, machine: Machine, decision: CloneTrial, origin: Origin, iteration: int) -> None:
        trial, source = machine.trials[decision.trial_id], machine.trials[decision.source]
        former = machine.moved.get(decision.source, source)
        row = [
            trial.spec.tag,
            source.spec.tag,
            iteration,
            origin.checkpoint.iteration,
            shown_config(former.config),
            shown_config(decision.config),
        ]
        line = f"{encode(row)}\n".encode()
        if line in self._adopted:
            return
        self._waiting.append(line)
        self._lines[decision.trial_id] = (*self._lines.get(decision.source, ()), line)
        self._changed.add(decision.trial_id)

    @property
    def unwritten(self) -> frozenset[str]:
        """The trials with a cloning that is not written yet."""
        return frozenset(self._changed)

    def flush(self) -> None:
        """Write the log. Raises OSError; then the log must be rewritten."""
        if not self._waiting:
            return
        for trial_id in sorted(self._changed):
            path = self._layout.policy_log_of(trial_id)
            replace_file(str(path), b"".join(self._lines[trial_id]))
        data = b"".join(self._waiting)
        if self._global.size:
            self._global.append(data)
        else:
            replace_file(self._global.path, data)
            self._global.size = len(data)
        self._changed.clear()
        self._waiting.clear()

    def settle(self) -> None:
        """Write the log, and remove one that a longer journal left. Raises OSError."""
        self.flush()
        if self._global.size or not self._layout.policy_log.exists():
            return
        for name in [*filter(is_policy_log, os.listdir(self._layout.root))]:
            remove_file(f"{self._layout.root}/{name}")


def _lines_of(path: Path) -> list[bytes]:
    try:
        return read_regular(path).splitlines(keepends=True)
    except OSError:
        return []


def _takeovers(answers: Sequence[Sequence[Decision]]) -> list[CloneTrial]:
    decided = (decision for answer in answers for decision in answer)
    return [one for one in decided if isinstance(one, CloneTrial) and one.is_logged]
