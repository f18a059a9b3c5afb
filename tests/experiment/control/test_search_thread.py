"""A search in its thread: what it gets, in which order, and again after a restore."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.experiment.control.proposer import Naming, Proposer
from holdfast.experiment.control.user_code import SearchThread, pausing_of
from holdfast.experiment.control.user_threads import Change, others_moved
from holdfast.experiment.records.rows import newest_row
from holdfast.scheduler.events import Event, ExperimentSpec, Resumed, SearchEnded, Suggested
from holdfast.scheduler.policies.hyperband import HyperBandScheduler
from holdfast.scheduler.searchers.concurrency_limiter import ConcurrencyLimiter
from holdfast.scheduler.searchers.searcher import Searcher
from holdfast.testing.rehearsal import Rehearsal
from holdfast.trial.events import Reported
from holdfast.trial.resources import ONE_CPU
from holdfast.trial.search_space.spaces import combined
from holdfast.trial.trial import Status, Trial, evolve
from holdfast.trial.values import Ref
from tests.rig.free_tasks import free_tasks


def test_trials_that_another_one_resumes_or_stops_are_reported_with_their_former_state() -> None:
    run = Rehearsal(
        capacity={"CPU": 3.0},
        policy=HyperBandScheduler(max_t=3, metric="loss", mode="min"),
        scheduler="HyperBandScheduler",
    )
    for index in range(3):
        run.suggest()
        run.start(f"t{index}")
    run.handle(SearchEnded())
    running = run.trial("t0")
    run.report("t0", {"loss": 1.0}, checkpoint=True)
    assert pausing_of(running, run.trial("t0")) == "on_pause"
    assert others_moved(run.machine, "t0") == []
    run.ends("t0")
    run.report("t1", {"loss": 2.0}, checkpoint=True)
    run.report("t2", {"loss": 3.0}, checkpoint=True)
    told = {
        after.trial_id: (event, before and pausing_of(before, after), after.status.is_final)
        for event, before, after in others_moved(run.machine, "t2")
        if after is not None
    }
    assert told == {"t0": (None, "on_unpause", False), "t1": (None, "", True)}


SPEC = ExperimentSpec(experiment_id="e", run="run", trainable="train", seed=1, num_samples=-1)


class Slow(Searcher):
    """Waits inside its call until released, and records the order of its calls and answers."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[Any] = []
        self.thinks, self.goes = threading.Event(), threading.Event()

    def suggest(self, trial_id: str) -> dict[str, Any]:
        self.order.append(trial_id)
        self.thinks.set()
        self.goes.wait()
        return {"x": len(self.order)}

    def recall(self, trial_id: str, config: dict[str, Any]) -> None:
        self.order.append(trial_id)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self.order.append(result["loss"])


class Stage:
    """A search thread, and the changes that the journal would hold."""

    def __init__(self, folder: Path, searcher: Searcher) -> None:
        self.posted: list[Event] = []
        self.said: list[str] = []
        self.arrived = asyncio.Event()
        self.changes: list[Change] = []
        proposer = Proposer(SPEC, {}, searcher, ONE_CPU, Naming(), root=folder)
        self.thread = SearchThread(
            proposer,
            tasks=free_tasks(),
            post=self.post,
            fail=self.fail,
            warn=print,
            inform=self.said.append,
            may_report=lambda: True,
            announces_wait=lambda: False,
        )

    def post(self, event: Event) -> None:
        self.posted.append(event)
        self.arrived.set()

    def fail(self, error: BaseException) -> None:
        raise error

    def reports(self, trial: Trial, loss: float) -> None:
        after = evolve(trial, row={"loss": loss}, status=Status.RUNNING)
        event = Reported(
            trial_id=trial.trial_id,
            attempt=1,
            iteration=1,
            metrics={"loss": loss},
            timestamp=0.0,
            time_this_iter_s=0.0,
            time_total_s=0.0,
        )
        change = (event, trial, after)
        self.changes.append(change)
        self.thread.observe(*change)

    async def suggested(self) -> Suggested:
        await self.arrived.wait()
        self.arrived.clear()
        event = self.posted[-1]
        assert isinstance(event, Suggested)
        self.changes.append((event, None, Trial(spec=event.spec)))
        return event


def test_results_during_a_question_are_replayed_after_it(tmp_path: Path) -> None:
    async def main() -> None:
        first = Slow()
        first.goes.set()
        stage = Stage(tmp_path, first)
        stage.thread.begin([], None, ())
        stage.thread.ask(0)
        trial = Trial(spec=(await stage.suggested()).spec)
        stage.reports(trial, 1.0)

        first.goes.clear()
        first.thinks.clear()
        stage.thread.ask(1)
        await asyncio.get_running_loop().run_in_executor(None, first.thinks.wait)
        stage.reports(trial, 2.0)
        stage.reports(trial, 3.0)
        first.goes.set()
        assert (await stage.suggested()).unheard == 2
        assert await stage.thread.finish(60) is None
        assert first.order == ["run_00000", 1.0, "run_00001", 2.0, 3.0]

        second = Slow()
        again = Stage(tmp_path, second)
        again.thread.begin([], Resumed(epoch=2, capacity={}), stage.changes)
        assert await again.thread.finish(60) is None
        assert second.order == first.order
        assert (stage.said, again.said) == ([], ["Slow was given the history of 2 trials"])

    asyncio.run(main())


class Thing:
    """An object of the user's."""


class ByPlace(Searcher):
    """Answers as searches with libraries do: with the place of an object in the space."""

    recalled: Any = None

    def set_search_properties(self, metric: Any, mode: Any, config: Any, **spec: Any) -> bool:
        return True

    def suggest(self, trial_id: str) -> dict[str, Any]:
        return {"x": Ref(path=("x",), index=0, summary="Thing")}

    def recall(self, trial_id: str, config: dict[str, Any]) -> None:
        self.recalled = config


def test_an_answer_from_a_later_space_is_recalled_with_the_objects_of_that(
    tmp_path: Path,
) -> None:
    wanted = Thing()
    before, after = {"x": tune.choice([Thing()])}, {"x": tune.choice([wanted])}
    search = ByPlace()
    proposer = Proposer(
        replace(SPEC, space_number=1),
        after,
        search,
        ONE_CPU,
        Naming(),
        root=tmp_path,
        values=combined({0: before, 1: after}),
    )
    proposer.open()
    suggested = proposer.propose(0)
    assert isinstance(suggested, Suggested)
    proposer.replay_suggestion(suggested)
    assert search.recalled == {"x": wanted}


class OfRay(Searcher):
    """A searcher as in Ray's documentation."""

    def __init__(self) -> None:
        super().__init__(metric="loss", mode="min")
        self.ends: list[Any] = []

    def suggest(self, trial_id: str) -> dict[str, Any]:
        return {"x": 1}

    def on_trial_complete(  # type: ignore[override]
        self, trial_id: str, result: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        self.ends.append((trial_id, result, kwargs))


@pytest.mark.parametrize("wrapped", [False, True])
def test_an_end_is_reported_by_name_as_ray_documents_it(tmp_path: Path, wrapped: bool) -> None:
    async def main() -> Any:
        search = OfRay()
        stage = Stage(tmp_path, ConcurrencyLimiter(search, 2) if wrapped else search)
        stage.thread.begin([], None, ())
        stage.thread.ask(0)
        trial = Trial(spec=(await stage.suggested()).spec)
        running = evolve(trial, row={"loss": 2.0}, status=Status.RUNNING)
        ended = evolve(running, status=Status.TERMINATED)
        stage.thread.observe(None, running, ended)
        assert await stage.thread.finish(60) is None
        assert search.ends == [("run_00000", newest_row(ended), {"error": False})]
        return search.ends[0][1]

    assert asyncio.run(main())["loss"] == 2.0
