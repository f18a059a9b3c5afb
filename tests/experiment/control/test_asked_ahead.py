"""A search in its thread that is asked before a worker is free for its answer."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

from holdfast.experiment.control.proposer import Naming, Proposer
from holdfast.experiment.control.user_code import SearchThread
from holdfast.scheduler.events import (
    Event,
    ExperimentSpec,
    Resumed,
    SearchEnded,
    Suggested,
    SuggestedAhead,
)
from holdfast.scheduler.searchers.concurrency_limiter import ConcurrencyLimiter, Repeater
from holdfast.scheduler.searchers.searcher import BasicVariantGenerator, Searcher
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.resources import ONE_CPU
from holdfast.trial.trial import Status, Trial, evolve
from tests.rig.free_tasks import free_tasks

SPEC = ExperimentSpec(experiment_id="e", run="run", trainable="train", seed=1, num_samples=-1)


class Scripted(Searcher):
    """Answers with these, one after the other, and records its calls."""

    def __init__(self, *answers: Any) -> None:
        super().__init__()
        self.answers, self.calls = list(answers), list[str]()
        self.goes = threading.Event()
        self.goes.set()

    def suggest(self, trial_id: str) -> Any:
        self.goes.wait()
        self.calls.append(trial_id[-1:])
        return self.answers.pop(0)

    def recall(self, trial_id: str, config: dict[str, Any]) -> None:
        self.calls.append(f"recall {trial_id[-1:]}")

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        self.calls.append(f"end {trial_id[-1:]}")


class Stage:
    """`is_awaited`: a worker is free for the answer."""

    def __init__(self, folder: Path, searcher: Searcher) -> None:
        self.posted: list[Event] = []
        self.is_awaited = False
        self.thread = SearchThread(
            Proposer(SPEC, {}, searcher, ONE_CPU, Naming(), root=folder),
            tasks=free_tasks(),
            post=self.posted.append,
            fail=self.fail,
            warn=print,
            inform=print,
            may_report=lambda: True,
            announces_wait=lambda: False,
            is_awaited=lambda: self.is_awaited,
        )
        self.thread.begin([], None, ())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        assert await self.thread.finish(60) is None

    def fail(self, error: BaseException) -> None:
        raise error

    async def asked(self, index: int, *, is_awaited: bool = False) -> list[Event]:
        """Ask, and wait until the thread has answered all that it was asked."""
        self.is_awaited = is_awaited
        self.thread.ask(index)
        return await self.answered()

    async def answered(self) -> list[Event]:
        while questions := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(questions)
        posted, self.posted[:] = list(self.posted), []
        return posted


def play(script: Callable[[], Any]) -> None:
    asyncio.run(script())


def test_an_answer_that_no_worker_waits_for_is_made_ahead_and_one_that_is_awaited_by_then_is_not(
    tmp_path: Path,
) -> None:
    async def script() -> None:
        search = Scripted({"x": 0}, {"x": 1})
        async with Stage(tmp_path, search) as stage:
            (ahead,) = await stage.asked(0)
            assert isinstance(ahead, SuggestedAhead)
            assert ahead.suggestion.spec.config == {"x": 0}
            search.goes.clear()
            stage.thread.ask(1)
            stage.is_awaited = True  # a worker became free while the search thought
            stage.thread.ask(1)
            search.goes.set()
            (awaited,) = await stage.answered()
            assert isinstance(awaited, Suggested)
            assert search.calls == ["0", "1"]

    play(script)


def test_not_now_is_asked_again_after_a_change_and_when_a_worker_is_free(tmp_path: Path) -> None:
    async def script() -> None:
        search = Scripted({"x": 0}, None, None, None, {"x": 1})
        async with Stage(tmp_path, search) as stage:
            (suggested,) = await stage.asked(0, is_awaited=True)
            assert await stage.asked(1) == []
            assert isinstance(suggested, Suggested)
            trial = Trial(spec=suggested.spec, status=Status.RUNNING)
            stage.thread.observe(None, trial, evolve(trial, status=Status.PAUSED))
            assert await stage.answered() == []
            assert await stage.asked(1, is_awaited=True) == []
            stage.thread.observe(None, trial, evolve(trial, status=Status.TERMINATED))
            (second,) = await stage.answered()
            assert isinstance(second, Suggested)
            assert search.calls == ["0", "1", "1", "1", "end 0", "1"]

    play(script)


def test_the_end_of_the_search_is_posted_only_when_a_worker_is_free_and_asked_for_once(
    tmp_path: Path,
) -> None:
    async def script() -> None:
        search = Scripted(Searcher.FINISHED)
        async with Stage(tmp_path, search) as stage:
            assert await stage.asked(0) == []
            assert await stage.asked(0) == []
            assert await stage.asked(0, is_awaited=True) == [SearchEnded()]
            assert search.calls == ["0"]

    play(script)


def test_what_was_suggested_ahead_is_recalled_once_where_the_search_answered(
    tmp_path: Path,
) -> None:
    """And what a restore with another search space drops is not recalled."""

    async def script() -> None:
        async with Stage(tmp_path, Scripted({"x": 0}, {"x": 1}, {"x": 2})) as stage:
            (first,) = await stage.asked(0, is_awaited=True)
            ahead = [(await stage.asked(index))[0] for index in (1, 2)]
            assert isinstance(first, Suggested)
            assert isinstance(ahead[0], SuggestedAhead)
            trial = Trial(spec=first.spec, status=Status.RUNNING)
            ended = evolve(trial, status=Status.TERMINATED)
            begun = ahead[0].suggestion
            history = [
                (first, None, trial),
                *((event, None, None) for event in ahead),
                (None, trial, ended),
                (begun, None, Trial(spec=begun.spec)),
            ]
            resumed = Resumed(epoch=2, capacity={})
            for known, expected in (
                (None, ["recall 0", "recall 1", "recall 2", "end 0"]),
                ({"run_00000", "run_00001"}, ["recall 0", "recall 1", "end 0"]),
            ):
                search = Scripted()
                again = Stage(tmp_path, search)
                again.thread.begin([ended], resumed, history, known)
                assert await again.thread.finish(60) is None
                assert search.calls == expected

    play(script)


def test_how_far_each_search_looks_ahead() -> None:
    class Learning(Searcher):
        look_ahead = 0.25

    assert Searcher().look_ahead == 0
    assert BasicVariantGenerator().look_ahead == 1
    assert ConcurrencyLimiter(Learning(), 4).look_ahead == 0.25
    assert ConcurrencyLimiter(Learning(), 4, batch=True).look_ahead == 1
    assert Repeater(Learning(), 3).look_ahead == 0.25


@pytest.mark.parametrize("share", [-0.5, float("nan"), "all", None])
def test_a_share_that_is_not_a_number_is_refused(tmp_path: Path, share: Any) -> None:
    search = Scripted()
    search.look_ahead = share
    proposer = Proposer(SPEC, {}, search, ONE_CPU, Naming(), root=tmp_path)
    with pytest.raises(InvalidConfig, match=r"Scripted\.look_ahead must be a number, 0 or more"):
        _ = proposer.look_ahead
