"""The experiments that the script of a job has begun, in the order of its `fit()` calls.

If the script starts again, after a crash or a reboot, each of its `fit()` calls continues the
experiment that the same call began before, or returns its results. Calls are distinguished by the
name that they give, or the trainable if they give none, and counted among equals.
"""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from holdfast.dataclass import dataclass
from holdfast.schema import Count, PlainName, UnreadableRecord, decode, to_fields
from holdfast.syncer.stores.store import parse_table, read_small

# The variable that has the file's name. It is empty in workers: a fit() of a trial is not a job's.
JOB = "HOLDFAST_JOB"
_MOST_BYTES = 16 << 20
_counted: Counter[tuple[str, str]] = Counter()
_counting = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunExperiment:
    """One call of `fit()`: `call` says which, `before` is the id of the experiment of that name
    that was there before ("" for none). A script that resumes by itself has no `call`."""

    call: str
    number: Count
    name: PlainName
    path: str
    before: str = ""


class JobExperiments:
    """The file of one job."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Self | None:
        """That of the job that this process is the script of; None for none."""
        found = environ.get(JOB)
        return cls(Path(found)) if found else None

    def number(self, call: str) -> int:
        """The number of equal calls that this process has made before this one."""
        with _counting:
            key = (str(self._path), call)
            _counted[key] += 1
            return _counted[key] - 1

    def find(self, call: str, number: int) -> BegunExperiment | None:
        """The experiment that this call began in an earlier start of the script."""
        several = [one for one in self.read() if (one.call, one.number) == (call, number)]
        return several[-1] if several else None

    def note(self, begun: BegunExperiment) -> None:
        """Write it down, before the experiment begins."""
        line = json.dumps(to_fields(begun)).encode() + b"\n"
        descriptor = os.open(
            self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        try:
            os.write(descriptor, line)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def note_resumed(self, name: str, path: str) -> None:
        """Write down an experiment that the script itself names, for `queue ls`."""
        if all(one.path != path for one in self.read()):
            self.note(BegunExperiment(call="", number=0, name=name, path=path))

    def read(self) -> list[BegunExperiment]:
        """All of them; without lines that a crash has cut off."""
        try:
            lines = read_small(self._path, _MOST_BYTES).splitlines()
        except OSError:
            return []
        found = []
        for line in lines:
            try:
                found.append(decode(BegunExperiment, parse_table(line)))
            except (ValueError, UnreadableRecord):
                continue
        return found
