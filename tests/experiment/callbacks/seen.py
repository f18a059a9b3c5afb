"""Events of a run, a machine that shows them to callbacks, and a callback that records hooks."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from holdfast.experiment.callbacks.callback import Callback
from holdfast.experiment.callbacks.thread import CallbackThread
from holdfast.experiment.callbacks.trial_view import Surroundings, TrialView, Views
from holdfast.experiment.records.rows import newest_row
from holdfast.scheduler.events import Begun, Event, Exited, ExperimentSpec, Raised, Suggested
from holdfast.scheduler.machine import Machine
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.trial.config import FailureConfig
from holdfast.trial.errors import Failure
from holdfast.trial.events import Reported, Returned, Started
from holdfast.trial.trial import CheckpointRecord, TrialSpec

DEADLINE_S = 20.0
BROKEN = Failure(kind="user", type_name="ValueError", message="bad")


def surroundings(root: Path) -> Surroundings:
    return Surroundings(
        trainable_name="train",
        experiment_path="bucket/results/exp",
        local_experiment_path=str(root / "exp"),
        config_of=lambda spec: spec.config,
        row_of=newest_row,
        checkpoint_of=lambda spec, record: Checkpoint(root / spec.dirname / record.dirname),
    )


def suggestion(index: int = 0, **config: Any) -> Suggested:
    config = config or {"lr": 0.5, "net": {"width": 8}, "fixed": 1}
    return Suggested(
        spec=TrialSpec(
            trial_id=f"aaaaa_{index:05}",
            index=index,
            name=f"train_aaaaa_{index:05}",
            dirname=f"train_aaaaa_{index:05}_{index}",
            config=config,
            tag=f"{index}_lr=0.5,net_width=8",
        )
    )


def started(index: int = 0, attempt: int = 1) -> Started:
    return Started(
        trial_id=f"aaaaa_{index:05}", attempt=attempt, pid=7, hostname="h", node_ip="10.0.0.1"
    )


def reported(
    iteration: int, index: int = 0, attempt: int = 1, checkpoint: int | None = None, **metrics: Any
) -> Reported:
    record = CheckpointRecord(
        index=checkpoint or 0,
        iteration=iteration,
        attempt=attempt,
        files=1,
        size_bytes=3,
        time_total_s=float(iteration),
    )
    return Reported(
        trial_id=f"aaaaa_{index:05}",
        attempt=attempt,
        iteration=iteration,
        metrics=metrics,
        timestamp=1000.0 + iteration,
        time_this_iter_s=1.0,
        time_total_s=float(iteration),
        checkpoint=None if checkpoint is None else record,
    )


def returned(index: int = 0, attempt: int = 1) -> Returned:
    return Returned(trial_id=f"aaaaa_{index:05}", attempt=attempt)


def raised(index: int = 0, attempt: int = 1) -> Raised:
    return Raised(trial_id=f"aaaaa_{index:05}", attempt=attempt, failure=BROKEN)


def exited(index: int = 0, attempt: int = 1) -> Exited:
    return Exited(trial_id=f"aaaaa_{index:05}", attempt=attempt, cause="was killed by SIGKILL")


class Run:
    """A machine whose every event is shown to a CallbackThread, as the controller does it."""

    def __init__(self, root: Path, max_failures: int = 0) -> None:
        self.views = Views(surroundings(root))
        self.machine = Machine()
        self.told: list[tuple[str, str]] = []
        self.threads: list[CallbackThread] = []
        spec = ExperimentSpec(
            experiment_id="e",
            run="aaaaa",
            trainable="train",
            seed=0,
            failure=FailureConfig(max_failures=max_failures),
        )
        self.machine.handle(Begun(spec=spec, capacity={"CPU": 4}), now=1.0)

    def thread(self, *callbacks: Callback, **options: Any) -> CallbackThread:
        thread = CallbackThread(
            callbacks,
            self.views,
            tell=lambda text, level: self.told.append((text, level)),
            **options,
        )
        self.threads.append(thread)
        return thread

    def started(self, *callbacks: Callback, **options: Any) -> CallbackThread:
        thread = self.thread(*callbacks, **options)
        thread.start()
        return thread

    def feed(self, *events: Event) -> None:
        for event in events:
            trial_id = getattr(event, "trial_id", "")
            before = self.machine.trials.get(trial_id)
            self.machine.handle(event, now=2.0)
            after = self.machine.trials.get(trial_id)
            for thread in self.threads:
                thread.observe(event, before, after)


class Recorder(Callback):
    """Records each hook of a trial, with the trial's state in it."""

    def __init__(self) -> None:
        self.hooks: list[str] = []
        self.results: list[dict[str, Any]] = []
        self.statuses: list[str] = []
        self.trials: list[TrialView] = []
        self.steps: list[tuple[str, int]] = []
        self.checkpoints: list[Checkpoint] = []
        self.known: list[int] = []
        self.thread: threading.Thread | None = None

    def _note(self, hook: str, trials: list[TrialView], trial: TrialView, **_: Any) -> None:
        self.thread = threading.current_thread()
        self.hooks.append(hook)
        self.statuses.append(trial.status)
        self.trials.append(trial)
        self.known.append(len(trials))

    def on_step_begin(self, iteration: int, trials: list[TrialView], **info: Any) -> None:
        self.steps.append(("begin", iteration))

    def on_step_end(self, iteration: int, trials: list[TrialView], **info: Any) -> None:
        self.steps.append(("end", iteration))

    def on_trial_start(self, *_: Any, **seen: Any) -> None:
        self._note("start", **seen)

    def on_trial_restore(self, *_: Any, **seen: Any) -> None:
        self._note("restore", **seen)

    def on_trial_save(self, *_: Any, **seen: Any) -> None:
        self._note("save", **seen)

    def on_trial_result(self, *_: Any, **seen: Any) -> None:
        self._note("result", **seen)
        self.results.append(seen["result"])

    def on_trial_complete(self, *_: Any, **seen: Any) -> None:
        self._note("complete", **seen)

    def on_trial_recover(self, *_: Any, **seen: Any) -> None:
        self._note("recover", **seen)

    def on_trial_error(self, *_: Any, **seen: Any) -> None:
        self._note("error", **seen)

    def on_checkpoint(self, *_: Any, **seen: Any) -> None:
        self._note("checkpoint", **seen)
        self.checkpoints.append(seen["checkpoint"])

    def on_experiment_end(self, trials: list[TrialView], **info: Any) -> None:
        self.hooks.append("end")


def delivered(run: Run, *events: Event) -> Recorder:
    recorder = Recorder()
    thread = run.started(recorder)
    run.feed(*events)
    thread.close(DEADLINE_S)
    assert thread.failures == []
    return recorder
