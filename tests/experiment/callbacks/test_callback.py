"""Users' callbacks: what they see, in which order, and the effect of their errors."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from holdfast.experiment.callbacks import thread as callbacks_thread
from holdfast.experiment.callbacks.callback import Callback, LoggerCallback, hooks_for
from holdfast.experiment.callbacks.thread import CallbackThread
from holdfast.experiment.callbacks.trial_view import Surroundings, TrialView, Views
from holdfast.experiment.records.rows import newest_row
from holdfast.scheduler.events import (
    Begun,
    Event,
    Exited,
    ExperimentSpec,
    Raised,
    Resumed,
    SearchEnded,
    Suggested,
)
from holdfast.scheduler.machine import Machine
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.trial.checkpoint import CheckpointRecord
from holdfast.trial.config import FailureConfig
from holdfast.trial.errors import Failure, TuneError
from holdfast.trial.events import Committed, Reported, Returned, Started
from holdfast.trial.trial import Status, Trial, TrialSpec

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


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Opened at the end, so that no thread outlives its test."""
    gate = threading.Event()
    yield gate
    gate.set()


def delivered(run: Run, *events: Event) -> Recorder:
    recorder = Recorder()
    thread = run.started(recorder)
    run.feed(*events)
    thread.close(DEADLINE_S)
    assert thread.failures == []
    return recorder


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


def test_a_trial_that_ends_well_is_started_reports_and_completes(run: Run) -> None:
    seen = delivered(run, suggestion(), started(), reported(1, acc=0.5), returned(), exited())
    assert seen.hooks == ["start", "result", "complete", "end"]
    assert seen.statuses == ["RUNNING", "RUNNING", "TERMINATED"]


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


def test_a_report_with_a_checkpoint_is_a_result_a_save_and_a_checkpoint(
    run: Run, tmp_path: Path
) -> None:
    seen = delivered(run, suggestion(), started(), reported(1, checkpoint=0))
    assert seen.hooks == ["start", "result", "save", "checkpoint", "end"]
    assert seen.checkpoints[0].path == str(tmp_path / "train_aaaaa_00000_0" / "checkpoint_000000")


def test_a_retried_trial_recovers_and_starts_again_from_its_checkpoint(tmp_path: Path) -> None:
    run = Run(tmp_path, max_failures=1)
    seen = delivered(
        run,
        *(suggestion(), started(), reported(1, checkpoint=0), raised(), exited()),
        *(started(attempt=2), returned(attempt=2)),
    )
    assert seen.hooks[4:] == ["recover", "start", "restore", "complete", "end"]


def test_a_lost_worker_whose_trial_starts_again_at_once_is_a_recovery(tmp_path: Path) -> None:
    run = Run(tmp_path, max_failures=1)
    seen = delivered(run, suggestion(), started(), exited(), started(attempt=2))
    assert seen.hooks == ["start", "recover", "start", "end"]


def test_a_trial_that_fails_for_good_is_an_error(run: Run) -> None:
    seen = delivered(run, suggestion(), started(), raised(), exited())
    assert seen.hooks == ["start", "error", "end"]
    assert seen.trials[-1].num_failures == 1
    assert seen.trials[-1].error_file is not None


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


def test_every_callback_sees_the_events_in_their_order(run: Run) -> None:
    first, second = Recorder(), Recorder()
    thread = run.started(first, second)
    run.feed(suggestion(0), suggestion(1), started(0), started(1))
    for iteration in range(1, 200):
        run.feed(reported(iteration, 0, n=iteration), reported(iteration, 1, n=-iteration))
    thread.close(DEADLINE_S)
    numbers = [row["n"] for row in first.results]
    assert numbers == [n for i in range(1, 200) for n in (i, -i)]
    assert second.hooks == first.hooks


def test_trials_are_known_to_callbacks_before_they_start(run: Run) -> None:
    seen = delivered(run, suggestion(0), suggestion(1), started(0))
    assert seen.known == [2]
    assert [trial.status for trial in run.views.trials] == ["RUNNING", "PENDING"]


def test_a_trial_is_one_object_for_the_whole_run(run: Run) -> None:
    seen = delivered(run, suggestion(), started(), reported(1), reported(2), returned())
    assert len({id(trial) for trial in seen.trials}) == 1


def test_hooks_run_in_another_thread_than_the_loop(run: Run) -> None:
    seen = delivered(run, suggestion(), started())
    assert seen.thread is not None
    assert seen.thread is not threading.current_thread()
    assert not seen.thread.is_alive()


def test_steps_enclose_what_is_delivered_and_are_counted(run: Run) -> None:
    seen = delivered(run, suggestion(), started(), reported(1), returned())
    numbers = [number for _, number in seen.steps]
    assert [word for word, _ in seen.steps] == ["begin", "end"] * (len(seen.steps) // 2)
    assert numbers == [n for n in range(1, len(numbers) // 2 + 1) for _ in (0, 1)]
    assert len(numbers) >= 2


def test_what_comes_while_the_thread_rests_is_one_step_and_the_end_does_not_wait(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callbacks_thread, "REST_S", 2 * DEADLINE_S)
    first = threading.Event()

    class Stepping(Recorder):
        def on_step_end(self, iteration: int, trials: list[TrialView], **info: Any) -> None:
            super().on_step_end(iteration, trials, **info)
            first.set()

    recorder = Stepping()
    thread = run.started(recorder)
    run.feed(suggestion())
    assert first.wait(DEADLINE_S)
    run.feed(started(), *(reported(at) for at in range(1, 5)))
    thread.close(DEADLINE_S)
    assert recorder.hooks == ["start", *["result"] * 4, "end"]
    assert recorder.steps == [("begin", 1), ("end", 1), ("begin", 2), ("end", 2)]


def test_without_callbacks_nothing_is_started_or_kept(run: Run) -> None:
    thread = run.thread()
    names = {t.name for t in threading.enumerate()}
    thread.start()
    run.feed(suggestion(), started(), reported(1))
    thread.close(DEADLINE_S)
    assert {t.name for t in threading.enumerate()} == names
    assert run.views.trials == []
    assert run.told == []


class Failing(Callback):
    def on_trial_result(self, *_: Any, **seen: Any) -> None:
        raise KeyError(f"no key in row {seen['iteration']}")


def test_an_exception_in_a_callback_is_shown_once_and_the_others_continue(run: Run) -> None:
    recorder = Recorder()
    thread = run.started(Failing(), recorder)
    run.feed(suggestion(), started(), *(reported(i) for i in range(1, 6)), returned())
    thread.close(DEADLINE_S)
    assert len(recorder.results) == 5
    assert recorder.hooks[-1] == "end"
    first, details, last = run.told
    assert first == (
        "callback Failing.on_trial_result: KeyError: 'no key in row 1'; the run continues",
        "error",
    )
    assert "test_callback.py" in details[0]
    assert details[1] == "info"
    assert last[0].endswith("(5 times)")
    assert last[1] == "warning"
    (failure,) = thread.failures
    assert failure.count == 5
    assert "raise KeyError" in failure.traceback


def test_a_callback_that_calls_exit_does_not_end_the_thread(run: Run) -> None:
    class Exiting(Callback):
        def on_trial_start(self, *_: Any, **__: Any) -> None:
            raise SystemExit(3)

    recorder = Recorder()
    thread = run.started(Exiting(), recorder)
    run.feed(suggestion(), started(), returned())
    thread.close(DEADLINE_S)
    assert recorder.hooks == ["start", "complete", "end"]
    assert thread.failures[0].hook == "on_trial_start"


class Stuck(Callback):
    """Waits in its first result until the gate opens."""

    def __init__(self, gate: threading.Event) -> None:
        self.gate = gate
        self.reached = threading.Event()
        self.results = 0

    def on_trial_result(self, *_: Any, **__: Any) -> None:
        self.reached.set()
        self.gate.wait()
        self.results += 1


def test_the_loop_never_waits_for_a_callback_and_nothing_is_dropped(
    run: Run, gate: threading.Event
) -> None:
    stuck = Stuck(gate)
    thread = run.started(stuck)
    run.feed(suggestion(), started(), reported(1))
    assert stuck.reached.wait(DEADLINE_S)
    run.feed(*(reported(i) for i in range(2, 500)))  # returns although the gate is shut
    assert stuck.results == 0
    gate.set()
    thread.close(DEADLINE_S)
    assert stuck.results == 499


def test_a_long_queue_is_reported_once_with_the_name_of_the_slow_callback(
    run: Run, gate: threading.Event
) -> None:
    stuck = Stuck(gate)
    thread = run.started(Recorder(), stuck, long_queue=10)
    run.feed(suggestion(), started(), reported(1))
    assert stuck.reached.wait(DEADLINE_S)
    run.feed(*(reported(i) for i in range(2, 100)))
    ((text, level),) = run.told
    assert level == "warning"
    assert "11 events wait for callback Stuck" in text
    gate.set()
    thread.close(DEADLINE_S)


def test_a_callback_that_does_not_return_is_given_up_at_the_deadline(
    run: Run, gate: threading.Event
) -> None:
    stuck = Stuck(gate)
    thread = run.started(stuck)
    run.feed(suggestion(), started(), reported(1))
    assert stuck.reached.wait(DEADLINE_S)
    run.feed(reported(2), reported(3))
    thread.close(0.0)
    (failure,) = thread.failures
    assert failure.callback == "Stuck"
    assert failure.hook == "on_trial_result"
    assert "3 events were not delivered" in failure.headline
    assert "self.gate.wait()" in failure.traceback
    (told, level), (stack, _) = run.told
    assert "3 events were not delivered" in told
    assert level == "error"
    assert "self.gate.wait()" in stack


def test_setup_gets_what_the_run_says_and_comes_before_all_else(run: Run) -> None:
    order: list[Any] = []

    class Careful(Callback):
        def setup(self, *args: Any, **info: Any) -> None:
            order.append(info)

        def set_state(self, state: dict[str, Any]) -> None:
            order.append(state)

        def on_trial_start(self, *_: Any, **__: Any) -> None:
            order.append("start")

    thread = run.thread(Careful(), setup={"num_samples": 3, "experiment_path": "x"})
    states = {name: pickle.dumps({"seen": seen}) for name, seen in (("Careful", 4), ("Gone", 5))}
    thread.start(states=states)
    run.feed(suggestion(), started())
    thread.close(DEADLINE_S)
    assert order == [{"num_samples": 3, "experiment_path": "x"}, {"seen": 4}, "start"]


def test_an_exception_in_setup_fails_the_start(run: Run) -> None:
    class Misconfigured(Callback):
        def setup(self, *args: Any, **info: Any) -> None:
            raise RuntimeError("no API key")

    thread = run.thread(Misconfigured())
    with pytest.raises(
        TuneError, match=r"Misconfigured.setup: RuntimeError: no API key"
    ) as caught:
        thread.start()
    assert isinstance(caught.value.__cause__, RuntimeError)
    thread.close(DEADLINE_S)


def test_a_setup_that_does_not_return_is_named(run: Run, gate: threading.Event) -> None:
    class Waiting(Callback):
        def setup(self, *args: Any, **info: Any) -> None:
            gate.wait()

    thread = run.thread(Waiting())
    with pytest.raises(TuneError, match=r"Waiting.setup did not return within 0\.1 s"):
        thread.start(deadline_s=0.1)
    gate.set()
    thread.close(DEADLINE_S)


def test_states_are_kept_each_period_and_before_the_end(run: Run) -> None:
    class Counting(Recorder):
        def get_state(self) -> dict[str, Any]:
            return {"results": len(self.results)}

    kept: SimpleQueue[Mapping[str, Any]] = SimpleQueue()
    thread = run.thread(
        Counting(), Counting(), Recorder(), keep=kept.put, states_period_s=0.0, clock=lambda: 7.0
    )
    thread.start()
    run.feed(suggestion(), started(), reported(1), reported(2))
    state: Mapping[str, Any] = {}
    while state != {"Counting[0]": {"results": 2}, "Counting[1]": {"results": 2}}:
        state = kept.get(timeout=DEADLINE_S)
    run.feed(reported(3))
    thread.close(DEADLINE_S)
    while not kept.empty():
        state = kept.get()
    assert state == {"Counting[0]": {"results": 3}, "Counting[1]": {"results": 3}}


def test_no_state_is_kept_where_no_callback_has_one(run: Run) -> None:
    kept: list[Mapping[str, Any]] = []
    thread = run.started(Recorder(), keep=kept.append, states_period_s=0.0)
    run.feed(suggestion(), started())
    thread.close(DEADLINE_S)
    assert kept == []


def test_a_state_that_cannot_be_loaded_is_reported_and_the_run_continues(run: Run) -> None:
    recorder = Recorder()
    thread = run.thread(recorder)
    thread.start(states={"Recorder": b"no pickle"})
    run.feed(suggestion(), started(), reported(1))
    thread.close(DEADLINE_S)
    assert "Recorder.set_state" in run.told[0][0]
    assert len(recorder.results) == 1


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


def test_a_view_has_the_names_that_users_of_ray_rely_on(tmp_path: Path) -> None:
    spec = suggestion().spec
    view = Views(surroundings(tmp_path)).show(Trial(spec=spec))
    assert str(view) == "train_aaaaa_00000"
    assert view.config == {"lr": 0.5, "net": {"width": 8}, "fixed": 1}
    assert view.evaluated_params == {"lr": 0.5, "net/width": 8}
    assert view.experiment_tag == "0_lr=0.5,net_width=8"
    assert view.status == TrialView.PENDING
    assert view.last_result == {}
    assert view.checkpoint is None
    assert not view.has_checkpoint()
    assert not view.is_finished()
    assert view.error_file is None
    assert view.node_ip == ""
    assert view.path == "bucket/results/exp/train_aaaaa_00000_0"
    assert view.local_path == view.logdir == str(tmp_path / "exp" / "train_aaaaa_00000_0")
    assert view.local_experiment_path == view.local_dir == str(tmp_path / "exp")
    assert view.experiment_dir_name == "exp"
    view.init_local_path()
    assert Path(view.local_path).is_dir()


def test_views_of_one_trial_are_equal_and_others_are_not(tmp_path: Path) -> None:
    here, there = Views(surroundings(tmp_path)), Views(surroundings(tmp_path))
    first, second = Trial(spec=suggestion(0).spec), Trial(spec=suggestion(1).spec)
    assert here.show(first) is here.show(first)
    assert here.show(first) == there.show(first)
    assert here.show(first) != here.show(second)
    assert {here.show(first): 1}[there.show(first)] == 1


def test_a_view_of_a_restored_trial_shows_its_last_row(tmp_path: Path) -> None:
    trial = Trial(spec=suggestion().spec, row={"acc": 0.5}, iteration=3)
    view = Views(surroundings(tmp_path)).show(trial)
    assert view.last_result == newest_row(trial)
    assert view.last_result["acc"] == 0.5
