"""A tracker that is a file with its calls, and fails as a test wants."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from holdfast.experiment.trackers.delivery import RetryDelays
from holdfast.experiment.trackers.tracker import TrackedTrial, Tracker
from tests.rig.script import MARKS, mark, wait_at


class FakeTracker(Tracker):
    """Appends a line of JSON to `file` for each call, and marks it for the test: "told row 3" for
    iteration 3, "told setup", "told end" and so on.

    The row of an iteration in `fails` raises ConnectionError this many times, one in `refuses`
    always raises ValueError. At the iteration `stalls` it waits at the gate "tracker".
    `keeps_until_the_end`: it holds a trial back until the trial, or the experiment, has ended.
    """

    delays: ClassVar[RetryDelays] = RetryDelays(first_s=0.05)

    def __init__(
        self,
        file: str | os.PathLike[str],
        *,
        fails: Mapping[int, int] | None = None,
        refuses: tuple[int, ...] = (),
        stalls: int = 0,
        keeps_until_the_end: bool = False,
        key: str = "",
        needs_key: bool = False,
    ) -> None:
        self.file = str(file)
        self.fails = dict(fails or {})
        self.refuses = refuses
        self.stalls = stalls
        self.keeps_until_the_end = keeps_until_the_end
        self.key = key
        self.needs_key = needs_key
        self._held: set[str] = set()

    def secrets(self) -> dict[str, Any]:
        return {"key": self.key}

    def check(self, environ: Mapping[str, str]) -> None:
        if self.needs_key and not self.key:
            raise ValueError("no key")

    def setup(self, *args: Any, **info: Any) -> None:
        self._write(what="setup", key=self.key)

    def log_trial_start(self, trial: Any) -> None:
        self._note("start", trial)

    def log_trial_restore(self, trial: Any) -> None:
        self._note("restore", trial)

    def log_trial_save(self, trial: Any) -> None:
        self._note("save", trial)

    def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
        if iteration == self.stalls:
            self._write(what="stalled", pid=os.getpid())
            wait_at("tracker")
        if self.fails.get(iteration, 0):
            self.fails[iteration] -= 1
            self._write(what="failed", iteration=iteration)
            raise ConnectionError("the tracker is away")
        if iteration in self.refuses:
            self._write(what="refused", iteration=iteration)
            raise ValueError(f"iteration {iteration} is not to its taste")
        self._note("row", trial, iteration=iteration, attempt=result["attempt"])

    def log_trial_end(self, trial: Any, failed: bool = False) -> None:
        self._note("end", trial, failed=failed)
        self._held.discard(trial.trial_id)

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        self._held.clear()

    def holds(self) -> frozenset[str]:
        return frozenset(self._held)

    def _note(self, what: str, trial: TrackedTrial, **facts: Any) -> None:
        if self.keeps_until_the_end:
            self._held.add(trial.trial_id)
        index = int(trial.trial_id.rpartition("_")[2])
        self._write(what=what, trial=index, run=trial.run_id, step=trial.told.row, **facts)

    def _write(self, **facts: Any) -> None:
        fd = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(fd, json.dumps(facts).encode() + b"\n")
        finally:
            os.close(fd)
        if MARKS in os.environ:
            mark("told", facts["what"], facts.get("iteration", ""))


def told_to(file: str | os.PathLike[str], what: str = "") -> list[dict[str, Any]]:
    """The calls of a FakeTracker of one kind, in order."""
    path = Path(file)
    lines = path.read_text().splitlines() if path.exists() else []
    found = [json.loads(line) for line in lines]
    return [fact for fact in found if what in ("", fact["what"])]
