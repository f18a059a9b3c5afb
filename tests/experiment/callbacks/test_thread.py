"""The thread of callbacks: the order of hooks, slow and failing callbacks, setup, states."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator, Mapping
from queue import SimpleQueue
from typing import Any

import pytest

from holdfast.experiment.callbacks import thread as callbacks_thread
from holdfast.experiment.callbacks.callback import Callback
from holdfast.experiment.callbacks.trial_view import TrialView
from holdfast.trial.errors import TuneError
from tests.experiment.callbacks.seen import (
    DEADLINE_S,
    Recorder,
    Run,
    delivered,
    reported,
    returned,
    started,
    suggestion,
)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Opened at the end, so that no thread outlives its test."""
    gate = threading.Event()
    yield gate
    gate.set()


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
    assert {t.name for t in threading.enumerate()} <= names
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
    assert "test_thread.py" in details[0]
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
    stuck, seconds = Stuck(gate), [0.0]
    thread = run.started(Recorder(), stuck, long_queue=10, clock=lambda: seconds[0])
    run.feed(suggestion(), started(), reported(1))
    assert stuck.reached.wait(DEADLINE_S)
    seconds[0] = 60.0
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
    with pytest.raises(TuneError, match=r"Waiting.setup did not return within 0\.5 s"):
        thread.start(deadline_s=0.5)
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


def test_the_time_in_which_a_script_was_suspended_is_none_that_a_callback_took(
    run: Run, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Held(Callback):
        def on_trial_start(self, *_: Any, **__: Any) -> None:
            gate.wait()

    thread = run.started(Held())
    run.feed(suggestion(), started())
    join, waits = threading.Thread.join, 0

    def join_suspended(joined: threading.Thread, timeout: float | None = None) -> None:
        nonlocal waits
        waits += 1
        if waits == 1:  # suspended until its time is over
            return
        gate.set()
        join(joined, timeout)

    monkeypatch.setattr(threading.Thread, "join", join_suspended)
    thread.close(DEADLINE_S)
    assert thread.failures == []
