"""A run of 1,000 trials as the thread of `fit()` sees it, in a terminal; prints its CPU seconds.

`watched.py SECONDS ALIVE VIEW OUT`: ALIVE trials run at once, each reports five times a second,
ends after a while, sometimes fails, and prints. VIEW is `live`, or `none` for the same events
without a view.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.experiment.control.output import RunOutput
from holdfast.experiment.control.watch import REFRESH_S, Refresher
from holdfast.experiment.progress.summarizer import Summarizer
from holdfast.experiment.progress.summary import RunFacts, StorageAge, Summary
from holdfast.experiment.progress.terminal_view import TerminalView
from holdfast.scheduler.events import ExperimentSpec
from holdfast.scheduler.machine import Machine
from holdfast.trial.errors import Failure
from holdfast.trial.trial import Status, Trial, TrialSpec
from holdfast.trial.values import format_tag

TRIALS = 1000
_LINES_PER_S = 2
FACTS = RunFacts(name="digits", path="s3://bucket/digits", local_path="/results", total=TRIALS)
_BAD = Failure(
    kind="user",
    type_name="ValueError",
    message="loss is nan",
    traceback='Traceback:\n  File "/home/me/train.py", line 42, in train\n    step()\n',
)


class Played:
    """Replaces a Run: its trials advance when `play` is called."""

    def __init__(self, alive: int) -> None:
        self.machine = Machine()
        self.machine.spec = ExperimentSpec(
            experiment_id="e", run="aaaaa", trainable="train", seed=0, metric="acc", mode="max"
        )
        self.output = RunOutput("")
        self._alive = alive
        self._running: deque[str] = deque()
        self._random = random.Random(0)
        self._summarizer = Summarizer(self.machine)

    def summary(self, facts: RunFacts) -> Summary:
        now = time.time()
        storage = StorageAge(oldest_s=4.0, checkpoints=3, files=6, pending_bytes=3_000_000)
        return self._summarizer.summarize(facts=facts, now=now, storage=storage)

    def play(self) -> None:
        """Let a quarter of a second pass."""
        trials, now = self.machine.trials, time.time()
        self.machine.active_s, self.machine.now = self.machine.active_s + REFRESH_S, now
        while len(self._running) < self._alive and len(trials) < TRIALS:
            self._begin(len(trials))
        for trial_id in list(self._running):
            self._report(trials[trial_id], now)
        for _ in range(max(1, self._alive // 100)):
            if self._running and len(trials) < TRIALS:
                self._end(self._running.popleft())
        if self._random.random() < _LINES_PER_S * REFRESH_S and self._running:
            self.output.show_line(
                f"train_{self._running[0]}", 1234, "stdout", "epoch done, loss 0.25"
            )

    def _begin(self, index: int) -> None:
        config = {"lr": self._random.random(), "width": self._random.choice((32, 64, 128))}
        spec = TrialSpec(
            trial_id=f"aaaaa_{index:05}",
            index=index,
            name=f"train_aaaaa_{index:05}",
            dirname=f"dir_{index}",
            config=config,
            tag=format_tag(index, config),
        )
        self.machine.trials[spec.trial_id] = Trial(spec=spec, status=Status.RUNNING)
        self._running.append(spec.trial_id)

    def _report(self, trial: Trial, now: float) -> None:
        row: dict[str, Any] = {"acc": self._random.random(), "loss": self._random.random()}
        self.machine.trials[trial.trial_id] = replace(
            trial,
            row=row,
            iteration=trial.iteration + 1,
            time_total_s=trial.time_total_s + REFRESH_S,
            reported_at=now,
        )

    def _end(self, trial_id: str) -> None:
        trial = self.machine.trials[trial_id]
        fails = self._random.random() < 0.1
        self.machine.trials[trial_id] = replace(
            trial,
            status=Status.ERROR if fails else Status.TERMINATED,
            error=_BAD if fails else None,
            failures=int(fails),
        )


def main(seconds: float, alive: int, view_name: str, out: Path) -> None:
    run = Played(alive)
    refresher = None
    if view_name == "live":
        view = TerminalView(sys.stderr)
        view.start()
        refresher = Refresher(run, view, FACTS)  # type: ignore[arg-type]
    # Half of all trials have ended, as in the middle of a run.
    for _ in range(TRIALS // 2 if alive < TRIALS else 1):
        run.play()
    if refresher is not None:
        refresher.refresh()
    began, cpu_s = time.monotonic(), time.process_time()
    while time.monotonic() - began < seconds:
        time.sleep(REFRESH_S)
        run.play()
        if refresher is not None:
            refresher.refresh()
    told = {"cpu_s": time.process_time() - cpu_s, "ran_s": time.monotonic() - began}
    if refresher is not None:
        view.abandon()
    out.write_text(json.dumps(told))


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
