"""Users' search and stop functions, in a thread that the run need not wait for."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from holdfast.experiment.control.user_threads import Change, StopperThread, UserThread
from holdfast.scheduler.events import StopperAnswered
from holdfast.scheduler.machine import Machine
from holdfast.testing.rehearsal import Rehearsal
from holdfast.trial.errors import TuneError
from holdfast.trial.stoppers import Stopper
from tests.rig.jumping_clock import JumpingClock
from tests.rig.workers.processes import PATIENCE_S


class Recorder(Stopper):
    """Ends the experiment with the third report, and records the reports that it saw."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        if result.get("loss") == "bad":
            raise ValueError("a bad loss")
        self.seen.append((trial_id, result["training_iteration"]))
        return bool(result["training_iteration"] == 2)

    def stop_all(self) -> bool:
        return len(self.seen) >= 3


def told(run: Rehearsal) -> Iterator[Change]:
    machine = Machine()
    for event, now, answers in run.events:
        subject = getattr(event, "trial_id", "")
        before = machine.trials.get(subject)
        machine.replay(event, now=now, answers=answers)
        yield event, before, machine.trials.get(subject)


def retold(
    run: Rehearsal, stopper: Any, number: int = 0, deadline_s: float = 60.0
) -> list[StopperAnswered]:
    async def replay() -> list[StopperAnswered]:
        thread = StopperThread(stopper, deadline_s=deadline_s)
        try:
            return await thread.replay(told(run), number)
        finally:
            thread.close()

    return asyncio.run(replay())


@pytest.fixture
def run() -> Rehearsal:
    """t0 and t1 run, and have a checkpoint each."""
    run = Rehearsal(has_stopper=True)
    for trial_id in ("t0", "t1"):
        run.suggest()
        run.start(trial_id)
        run.report(trial_id, checkpoint=True)
        run.answer(trial_id)
    return run


def test_it_is_shown_every_report_in_order_also_one_that_was_run_again(run: Rehearsal) -> None:
    run.report("t0")
    run.answer("t0", stop=True)
    run.report("t1", {"loss": 1})
    run.answer("t1")
    run.crash()
    run.resume()
    run.start("t1")
    run.report("t1", {"loss": 2})
    stopper = Recorder()
    retold(run, stopper)
    assert stopper.seen == [("t0", 1), ("t1", 1), ("t0", 2), ("t1", 2), ("t1", 2)]


def test_answers_that_were_given_are_not_given_again(run: Rehearsal) -> None:
    assert retold(run, Recorder()) == []


def test_an_answer_that_a_death_cut_off_is_given_now(run: Rehearsal) -> None:
    run.report("t0", checkpoint=True)
    (answer,) = retold(run, Recorder())
    assert (answer.trial_id, answer.attempt, answer.iteration) == ("t0", 1, 2)
    assert (answer.stop, answer.stop_all) == (True, True)


def test_what_the_users_code_raises_counts_only_if_it_was_not_reported(run: Rehearsal) -> None:
    run.report("t0", {"loss": "bad"})
    (answer,) = retold(run, Recorder())
    assert answer.failure is not None
    assert answer.failure.message == "a bad loss"
    assert answer.failure.kind == "stopper"
    run.answer("t0", failed=answer.failure)
    assert retold(run, Recorder()) == []


def test_a_stopper_that_came_later_is_shown_what_came_after_it(run: Rehearsal) -> None:
    run.crash()
    run.resume(changed={"stop_number": 1})
    run.start("t0", "t1")
    run.report("t1", checkpoint=True)
    run.answer("t1")
    stopper = Recorder()
    assert retold(run, stopper, number=1) == []
    assert stopper.seen == [("t1", 2)]


def test_a_stopper_that_never_returns_ends_in_an_error(run: Rehearsal) -> None:
    leave = threading.Event()

    def stop(trial_id: str, result: dict[str, Any]) -> bool:
        return leave.wait()

    try:
        with pytest.raises(TuneError, match=r"the stopper gave no answer within 0\.01 s"):
            retold(run, stop, deadline_s=0.01)
    finally:
        leave.set()


HANGS = """
import asyncio, threading
from holdfast.experiment.control.user_threads import UserThread
from holdfast.trial.errors import TuneError

async def main():
    thread = UserThread("stopper", deadline_s=0.01)
    try:
        await thread.ask(threading.Event().wait)
    except TuneError as error:
        print(error)
    thread.close()

asyncio.run(main())
"""


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """An event that does not happen before the end of the test."""
    event = threading.Event()
    yield event
    event.set()


def test_a_script_ends_though_a_function_of_the_user_hangs() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout == "the stopper gave no answer within 0.01 s\n"
    assert ended.stderr == ""


@pytest.mark.parametrize("error", [ValueError("no"), TimeoutError("the user's own")])
def test_what_the_function_raises_is_raised(error: Exception) -> None:
    def fail() -> None:
        raise error

    async def main() -> None:
        user_thread = UserThread("stopper")
        with pytest.raises(type(error)) as caught:
            await user_thread.ask(fail)
        assert caught.value.args == error.args
        user_thread.close()

    asyncio.run(main())


def test_after_a_deadline_the_next_question_gets_a_fresh_thread(never: threading.Event) -> None:
    async def main() -> None:
        user_thread = UserThread("stopper", deadline_s=0.01)
        with pytest.raises(TuneError, match=r"no answer within 0\.01 s"):
            await user_thread.ask(never.wait)
        assert await user_thread.tell(lambda: "answer") == "answer"
        user_thread.close()

    asyncio.run(main())


def test_a_question_whose_thread_had_not_begun_at_the_deadline_is_not_asked_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    starts = iter([lambda thread: None])
    start = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda one: next(starts, start)(one))

    async def main() -> None:
        asked: list[str] = []
        user_thread, answered = UserThread("stopper", deadline_s=0.01), threading.Event()
        with pytest.raises(TuneError):
            await user_thread.ask(partial(asked.append, "question"))
        user_thread.tell(answered.set)
        assert answered.wait(PATIENCE_S)  # the loop does nothing until then
        assert asked == []
        user_thread.close()

    asyncio.run(main())


def test_what_waits_behind_a_question_that_hangs_is_not_lost(never: threading.Event) -> None:
    async def main() -> None:
        user_thread = UserThread("search algorithm", deadline_s=0.01)
        asked = asyncio.ensure_future(user_thread.ask(never.wait))
        await asyncio.sleep(0)
        told = [user_thread.tell(lambda: "first"), user_thread.tell(lambda: "second")]
        with pytest.raises(TuneError):
            await asked
        assert await asyncio.gather(*told) == ["first", "second"]
        user_thread.close()

    asyncio.run(main())


def test_a_question_that_waited_behind_one_that_hangs_has_its_own_deadline(
    never: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_answer = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        never.wait()

    async def main() -> None:
        clock, user_thread = JumpingClock(monkeypatch), UserThread("stopper", deadline_s=10.0)
        hangs = asyncio.ensure_future(user_thread.ask(hang))
        await clock.jump(0.0)
        assert begun.wait(PATIENCE_S)
        await clock.jump(1.0)
        waits = asyncio.ensure_future(user_thread.ask(may_answer.wait))
        await clock.jump(0.0)
        await clock.jump(9.0)
        with pytest.raises(TuneError):
            await hangs
        await clock.jump(1.5)  # the deadline of the second question, if it counted from the start
        may_answer.set()
        assert await waits
        user_thread.close()

    try:
        asyncio.run(main())
    finally:
        may_answer.set()


def test_the_time_in_which_the_script_was_suspended_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_answer = threading.Event()

    async def main() -> None:
        clock, user_thread = JumpingClock(monkeypatch), UserThread("stopper", deadline_s=10.0)
        asked = asyncio.ensure_future(user_thread.ask(may_answer.wait))
        await clock.jump(0.0)
        await clock.jump(3600.0)
        await clock.jump(9.0)
        may_answer.set()
        assert await asked
        user_thread.close()

    try:
        asyncio.run(main())
    finally:
        may_answer.set()


def test_what_waits_when_it_is_closed_is_cancelled() -> None:
    async def main() -> None:
        begun, waits = threading.Event(), threading.Event()
        user_thread = UserThread("search algorithm")

        def wait() -> None:
            begun.set()
            waits.wait()

        running = user_thread.tell(wait)
        waiting = user_thread.tell(lambda: None)
        begun.wait()
        user_thread.close()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        waits.set()
        await running

    asyncio.run(main())


def test_a_question_waits_behind_a_long_history_as_long_as_that_continues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The deadline is for each step, and then for the question."""
    deadlines = 3
    gates = [threading.Event() for _ in range(deadlines)]
    passed = [threading.Event() for _ in range(deadlines)]
    wait, over = asyncio.wait, iter(zip(gates, passed, strict=True))

    def steps() -> Iterator[None]:
        for gate, known in zip(gates, passed, strict=True):
            gate.wait()
            yield
            known.set()  # by now the step has counted

    async def one_step_a_deadline(waited: Any, **_: Any) -> Any:
        for gate, known in over:
            gate.set()
            await asyncio.to_thread(known.wait)
            return set(), set(waited)
        return await wait(waited)

    async def main() -> None:
        user_thread = UserThread("search algorithm")
        told = user_thread.tell_each(steps())
        assert await user_thread.ask(lambda: "answer") == "answer"
        assert told.done()
        user_thread.close()

    monkeypatch.setattr("holdfast.runtime.tasks.asyncio.wait", one_step_a_deadline)
    asyncio.run(main())
    assert next(over, None) is None
