"""The stopper's thread: the reports that it sees, and sees again after a restore."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.experiment.control.user_threads import Change, StopperThread
from holdfast.scheduler.events import StopperAnswered
from holdfast.scheduler.machine import Machine
from holdfast.testing.rehearsal import Rehearsal
from holdfast.trial.errors import TuneError
from holdfast.trial.stoppers import Stopper


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


def test_a_function_is_shown_it_as_well(run: Rehearsal) -> None:
    run.report("t1")
    seen = []

    def stop(trial_id: str, result: dict[str, Any]) -> bool:
        seen.append(result["trial_id"])
        return True

    (answer,) = retold(run, stop)
    assert (answer.stop, answer.stop_all) == (True, False)
    assert seen == ["t0", "t1", "t1"]


def test_a_stopper_that_never_returns_ends_in_an_error(run: Rehearsal) -> None:
    leave = threading.Event()

    def stop(trial_id: str, result: dict[str, Any]) -> bool:
        return leave.wait()

    try:
        with pytest.raises(TuneError, match=r"the stopper gave no answer within 0\.01 s"):
            retold(run, stop, deadline_s=0.01)
    finally:
        leave.set()
