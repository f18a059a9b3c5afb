"""Which hooks of a callback an event calls, and what they get."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.experiment.callbacks.callback import Callback, LoggerCallback, hooks_for
from holdfast.experiment.callbacks.trial_view import TrialView
from holdfast.scheduler.events import Begun, ExperimentSpec, Resumed, SearchEnded, Suggested
from holdfast.scheduler.machine import Machine
from holdfast.trial.events import Committed
from holdfast.trial.trial import Status
from tests.experiment.callbacks.seen import (
    DEADLINE_S,
    Recorder,
    Run,
    delivered,
    exited,
    raised,
    reported,
    returned,
    started,
    suggestion,
)


def test_an_attempt_that_starts_again_elsewhere_is_started_once(run: Run) -> None:
    """As if a reused worker turned out unsuitable for the trial's config."""
    seen = delivered(run, suggestion(), started(), started(), reported(1, acc=0.5))
    assert seen.hooks == ["start", "result", "end"]


def test_a_trial_that_something_else_has_ended_completes(run: Run) -> None:
    recorder = Recorder()
    thread = run.started(recorder)
    run.feed(suggestion())
    before = run.machine.trials["aaaaa_00000"]
    thread.observe(None, before, replace(before, status=Status.TERMINATED))
    thread.close(DEADLINE_S)
    assert recorder.hooks == ["complete", "end"]


def test_a_result_is_the_full_row(run: Run) -> None:
    seen = delivered(run, suggestion(), started(), reported(1, acc=0.5), reported(2, acc=0.7))
    row = seen.results[1]
    assert row["acc"] == 0.7
    assert row["training_iteration"] == 2
    assert row["trial_id"] == "aaaaa_00000"
    assert row["pid"] == 7
    assert row["config"]["net"] == {"width": 8}
    assert row["time_since_restore"] == 2.0


def test_the_time_since_a_restore_counts_from_where_the_attempt_began(tmp_path: Path) -> None:
    run = Run(tmp_path, max_failures=1)
    seen = delivered(
        run,
        *(suggestion(), started(), reported(1, checkpoint=0), raised(), exited()),
        *(started(attempt=2), reported(2, attempt=2, checkpoint=1), reported(3, attempt=2)),
    )
    assert [row["time_since_restore"] for row in seen.results] == [1.0, 1.0, 2.0]


def test_a_callback_that_changes_its_result_changes_no_one_elses(run: Run) -> None:
    class Greedy(Callback):
        def on_trial_result(self, *_: Any, **seen: Any) -> None:
            result = seen["result"]
            result["nested"]["a"] = "changed"
            result["config"]["net"]["width"] = "changed"
            result.clear()

    recorder = Recorder()
    thread = run.started(Greedy(), recorder)
    run.feed(suggestion(), started(), reported(1, nested={"a": 1}))
    thread.close(DEADLINE_S)
    assert recorder.results[0]["nested"] == {"a": 1}
    assert recorder.trials[0].last_result["nested"] == {"a": 1}
    trial = run.machine.trials["aaaaa_00000"]
    assert trial.row == {"nested": {"a": 1}}
    assert trial.spec.config["net"] == {"width": 8}


def test_a_lost_worker_whose_trial_starts_again_at_once_is_a_recovery(tmp_path: Path) -> None:
    run = Run(tmp_path, max_failures=1)
    seen = delivered(run, suggestion(), started(), exited(), started(attempt=2))
    assert seen.hooks == ["start", "recover", "start", "end"]


def test_what_an_attempt_given_up_still_says_is_not_delivered(tmp_path: Path) -> None:
    run = Run(tmp_path, max_failures=1)
    stale = reported(9, attempt=1, acc=9)
    seen = delivered(
        run, suggestion(), started(), raised(), exited(), started(attempt=2), stale, started()
    )
    assert seen.hooks == ["start", "recover", "start", "end"]
    assert seen.results == []


def test_a_committed_checkpoint_calls_no_hook_again(run: Run) -> None:
    commit = Committed(trial_id="aaaaa_00000", index=0)
    seen = delivered(run, suggestion(), started(), reported(1, checkpoint=0), commit)
    assert seen.hooks == ["start", "result", "save", "checkpoint", "end"]


def test_an_interrupted_trial_neither_recovers_nor_ends() -> None:
    spec = suggestion().spec
    machine = Machine()
    machine.handle(
        Begun(
            spec=ExperimentSpec(experiment_id="e", run="aaaaa", trainable="t", seed=0),
            capacity={"CPU": 1},
        ),
        now=1.0,
    )
    for event in (Suggested(spec=spec), started()):
        machine.handle(event, now=1.0)
    before = machine.trials[spec.trial_id]
    resumed = Resumed(epoch=2, capacity={"CPU": 1})
    machine.handle(resumed, now=2.0)
    after = machine.trials[spec.trial_id]
    assert after.attempt == before.attempt + 1
    assert hooks_for(resumed, before, after) == ()


def test_a_logger_callback_logs_a_trials_life(tmp_path: Path) -> None:
    class Log(LoggerCallback):
        def __init__(self) -> None:
            self.lines: list[tuple[Any, ...]] = []

        def log_trial_start(self, trial: TrialView) -> None:
            self.lines.append(("start", str(trial)))

        def log_trial_restore(self, trial: TrialView) -> None:
            self.lines.append(("restore", trial.trial_id))

        def log_trial_save(self, trial: TrialView) -> None:
            self.lines.append(("save", trial.has_checkpoint()))

        def log_trial_result(
            self, iteration: int, trial: TrialView, result: dict[str, Any]
        ) -> None:
            self.lines.append(("result", iteration, result["acc"]))

        def log_trial_end(self, trial: TrialView, failed: bool = False) -> None:
            self.lines.append(("end", trial.trial_id, failed))

    run = Run(tmp_path, max_failures=1)
    log = Log()
    thread = run.started(log)
    run.feed(suggestion(0), started(), reported(1, acc=0.5, checkpoint=0), raised(), exited())
    run.feed(started(attempt=2), returned(attempt=2), exited(attempt=2))
    run.feed(suggestion(1), SearchEnded(), started(1), raised(1), exited(1))
    run.feed(started(1, attempt=2), raised(1, attempt=2))
    thread.close(DEADLINE_S)
    first, second = "aaaaa_00000", "aaaaa_00001"
    assert log.lines == [
        ("start", f"train_{first}"),
        ("result", 1, 0.5),
        ("save", True),
        ("start", f"train_{first}"),
        ("restore", first),
        ("end", first, False),
        ("start", f"train_{second}"),
        ("start", f"train_{second}"),
        ("end", second, True),
    ]
