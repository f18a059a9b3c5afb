"""Trials that a person adds while the search runs: the others stay as they would have been."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.experiment.control.proposer import Naming, Proposer
from holdfast.experiment.control.user_code import SearchThread
from holdfast.scheduler.events import (
    ConfigRefused,
    Event,
    ExperimentSpec,
    SearchEnded,
    Suggested,
)
from holdfast.scheduler.searchers.concurrency_limiter import ConcurrencyLimiter, Repeater
from holdfast.scheduler.searchers.searcher import BasicVariantGenerator, Searcher
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.resources import ONE_CPU, PlacementGroupFactory
from holdfast.trial.trial import TrialSpec
from holdfast.tune.search.bohb import TuneBOHB
from tests.rig.free_tasks import free_tasks

SPEC = ExperimentSpec(experiment_id="e", run="run", trainable="train", seed=1, num_samples=2)
GRID: dict[str, Any] = {"lr": tune.uniform(0, 1), "batch": tune.grid_search([1, 2, 3])}
DOMAINS: dict[str, Any] = {"lr": tune.uniform(0, 1), "width": tune.randint(1, 100)}


class Learner(Searcher):
    """Takes the Tuner's space, and records what it hears of."""

    def __init__(self, limit: int = 100) -> None:
        super().__init__()
        self.heard: list[tuple[str, str, Any]] = []
        self.limit = limit

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: Mapping[str, Any], **spec: Any
    ) -> bool:
        return True

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        if len(self.heard) >= self.limit:
            return None
        config = {"lr": random.random(), "width": 7}
        self.heard.append(("suggest", trial_id, config))
        return config

    def recall(self, trial_id: str, config: dict[str, Any]) -> None:
        self.heard.append(("recall", trial_id, config))


class OfRay(Learner):
    """A searcher as users write it for Ray: it recalls nothing."""

    recall = Searcher.recall


def proposer_of(
    folder: Path,
    space: Mapping[str, Any],
    search: BasicVariantGenerator | Searcher | None = None,
    made: Sequence[TrialSpec] = (),
    resources: Any = ONE_CPU,
    **spec: Any,
) -> Proposer:
    known = replace(SPEC, **spec)
    made_of = search or BasicVariantGenerator()
    proposer = Proposer(known, space, made_of, resources, Naming(), root=folder, made=made)
    if proposer.searcher is not None:
        proposer.open()
    return proposer


def proposed(proposer: Proposer, index: int) -> Suggested:
    answer = proposer.propose(index)
    assert isinstance(answer, Suggested)
    return answer


def added(proposer: Proposer, index: int, config: Mapping[str, Any]) -> Suggested:
    answer = proposer.propose_added(index, config)
    assert isinstance(answer, Suggested)
    return answer


# -- grids and random search ----------------------------------------------------------------------


@pytest.mark.parametrize("constant", [False, True])
def test_the_variants_of_a_grid_are_the_same_with_and_without_added_trials(
    tmp_path: Path, constant: bool
) -> None:
    def search() -> BasicVariantGenerator:
        return BasicVariantGenerator(constant_grid_search=constant)

    plain = proposer_of(tmp_path, GRID, search())
    alone = [proposed(plain, index).spec.config for index in range(6)]
    proposer = proposer_of(tmp_path, GRID, search())
    several: list[Suggested] = []
    for index in range(8):
        is_added = index in (2, 5)
        make = added(proposer, index, {"lr": 9.0}) if is_added else proposed(proposer, index)
        several.append(make)
    assert [one.spec.config for one in several if not one.spec.is_added] == alone
    assert [one.spec.index for one in several] == list(range(8))
    assert [one.spec.trial_id for one in several][2] == "run_00002"
    assert [one.is_last for one in several] == [False] * 7 + [True]
    assert proposer.total == 6
    assert isinstance(proposer.propose(8), SearchEnded)
    assert {one.spec.config["lr"] for one in several if one.spec.is_added} == {9.0}

    # A restore in the middle.
    made = [one.spec for one in several[:4]]
    again = proposer_of(tmp_path, GRID, search(), made)
    assert again.total == 6
    rest = [proposed(again, 4), added(again, 5, {"lr": 9.0}), proposed(again, 6)]
    assert [one.spec.config for one in rest] == [one.spec.config for one in several[4:7]]


def test_a_new_space_counts_added_trials_neither_before_nor_after(tmp_path: Path) -> None:
    first = proposer_of(tmp_path, GRID)
    made = [
        proposed(first, 0).spec,
        added(first, 1, {"batch": 2}).spec,
        proposed(first, 2).spec,
    ]
    space = {**GRID, "epochs": 3}
    given = {"space_number": 1, "space_from": 3}
    plain_made = [replace(made[0]), replace(made[2], index=1)]
    plain = proposer_of(tmp_path, space, None, plain_made, space_number=1, space_from=2)
    alone = [proposed(plain, index).spec.config for index in range(2, 6)]
    second = proposer_of(tmp_path, space, None, made, **given)
    assert second.total == plain.total == 6
    assert [proposed(second, index).spec.config for index in range(3, 7)] == alone
    assert isinstance(second.propose(7), SearchEnded)


def test_more_samples_make_more_trials(tmp_path: Path) -> None:
    proposer = proposer_of(tmp_path, GRID)
    assert proposer.total_of(3) == 9
    proposer.extend(3)
    assert proposer.total == 9
    assert isinstance(proposer.propose(8), Suggested)


def test_what_an_added_config_leaves_out_has_a_random_stream_of_its_own(tmp_path: Path) -> None:
    one, other = (proposer_of(tmp_path, DOMAINS) for _ in range(2))
    proposed(other, 0)
    first, second = added(one, 0, {"lr": 2.0}), added(one, 1, {"lr": 2.0})
    assert first.spec.config != second.spec.config
    assert added(other, 1, {"lr": 2.0}).spec.config == first.spec.config


def test_an_added_config_for_which_the_users_code_raises_is_refused(tmp_path: Path) -> None:
    def resources(config: dict[str, Any]) -> PlacementGroupFactory:
        return PlacementGroupFactory([{"CPU": 100 / config["lr"]}])

    proposer = proposer_of(tmp_path, DOMAINS, resources=resources)
    answer = proposer.propose_added(0, {"lr": 0})
    assert answer == ConfigRefused(why="ZeroDivisionError: division by zero")
    assert added(proposer, 0, {"lr": 50}).spec.index == 0
    space = {"twice": tune.sample_from(lambda spec: 2 * spec.config.lr["x"]), "lr": 1}
    refused = proposer_of(tmp_path, space).propose_added(0, {"lr": 3})
    assert isinstance(refused, ConfigRefused)
    assert "sample_from's function raised TypeError" in refused.why


def test_a_config_is_checked_against_the_space_of_the_tuner_or_of_the_search(
    tmp_path: Path,
) -> None:
    proposer = proposer_of(tmp_path, DOMAINS)
    (line,) = proposer.checked_config({"lr": "x" * 1_000_000})[1]
    assert len(line) < 400
    assert proposer.checked_config({"lr": 5})[1] == [
        "lr: 5, where param_space has uniform(0.0, 1.0)"
    ]
    with pytest.raises(InvalidConfig, match="Did you mean 'width'"):
        proposer.checked_config({"widht": 5})
    part = {"path": ["lr"], "text": "uniform(0, 1)", "varied": True}

    class Own(Learner):
        def set_search_properties(self, *given: Any, **spec: Any) -> bool:
            return False

    proposer = proposer_of(tmp_path, {"epochs": 1}, Own(), options={"search_space": [part]})
    assert proposer.checked_config({"lr": 5, "epochs": 2})[1] == [
        "epochs: 2, where param_space has 1"
    ]
    with pytest.raises(InvalidConfig, match="'x' is not in the search space"):
        proposer.checked_config({"x": 5})
    assert proposer_of(tmp_path, {"epochs": 1}, Own()).checked_config({"x": 5}) == ({"x": 5}, [])


# -- search algorithms ----------------------------------------------------------------------------


def test_a_search_hears_of_an_added_trial_as_of_its_own_also_after_a_restore(
    tmp_path: Path,
) -> None:
    search = Learner()
    proposer = proposer_of(tmp_path, {**DOMAINS, "epochs": 3}, search, num_samples=3)
    several = [
        proposed(proposer, 0),
        added(proposer, 1, {"lr": 0.25}),
        added(proposer, 2, {"lr": 5.0}),  # not in the space that it searches
        proposed(proposer, 3),
    ]
    assert [(what, trial_id) for what, trial_id, _ in search.heard] == [
        ("suggest", "run_00000"),
        ("recall", "run_00001"),
        ("suggest", "run_00003"),
    ]
    config = several[1].spec.config
    assert search.heard[1][2] == {"lr": 0.25, "width": config["width"]}
    assert config["epochs"] == 3
    assert proposer.skipped == {"run_00002"}

    again = Learner()
    restored = proposer_of(
        tmp_path, {**DOMAINS, "epochs": 3}, again, [one.spec for one in several], num_samples=3
    )
    for one in several:
        restored.replay_suggestion(one)
    assert [heard[1:] for heard in again.heard] == [heard[1:] for heard in search.heard]
    assert restored.skipped == {"run_00002"}
    # Its random numbers are those of the trials that it makes itself.
    assert proposed(restored, 4).answer == proposed(proposer, 4).answer


def test_an_added_config_takes_the_place_of_no_point_to_evaluate(tmp_path: Path) -> None:
    def searching(made: Sequence[TrialSpec] = ()) -> Proposer:
        points = [{"lr": 0.125, "width": 3}, {"lr": 0.5, "width": 4}]
        search = TuneBOHB(points_to_evaluate=points, seed=3)
        goal = {"metric": "loss", "mode": "min", "num_samples": -1}
        return proposer_of(tmp_path, DOMAINS, search, made, **goal)

    proposer = searching()
    several = [
        proposed(proposer, 0),
        added(proposer, 1, {"lr": 0.75}),
        added(proposer, 2, {"lr": 7.5}),  # not in the space
        proposed(proposer, 3),
        proposed(proposer, 4),
    ]
    assert [one.spec.config["lr"] for one in several[:4]] == [0.125, 0.75, 7.5, 0.5]
    assert proposer.skipped == {"run_00002"}
    restored = searching([one.spec for one in several])
    for one in several:
        restored.replay_suggestion(one)
    assert restored.skipped == {"run_00002"}
    assert proposed(restored, 5).spec.config == proposed(proposer, 5).spec.config


def test_a_users_search_draws_the_same_with_and_without_added_trials(tmp_path: Path) -> None:
    plain, other = (proposer_of(tmp_path, DOMAINS, Learner()) for _ in range(2))
    alone = [proposed(plain, index).spec.config for index in range(2)]
    first = proposed(other, 0).spec.config
    added(other, 1, {"lr": 5.0})
    assert [first, proposed(other, 2).spec.config] == alone


UNLEARNED = "does not learn from the added trial run_00000, which runs: "


@pytest.mark.parametrize(
    ("make", "hears"),
    [
        (lambda: ConcurrencyLimiter(Learner(), 4), True),
        (lambda: ConcurrencyLimiter(OfRay(), 4), False),
        (OfRay, False),
        (lambda: Repeater(Learner(), 3), False),
    ],
)
def test_a_search_that_cannot_take_another_config_does_not_hear_of_it(
    tmp_path: Path, make: Any, hears: bool
) -> None:
    proposer = proposer_of(tmp_path, DOMAINS, make(), metric="loss", mode="min")
    spec = added(proposer, 0, {"lr": 0.5}).spec
    assert (spec.trial_id not in proposer.skipped) is hears
    assert spec.config["lr"] == 0.5
    told = "" if hears else f"{UNLEARNED}it takes no config that it has not suggested"
    assert proposer.unlearned.partition(" ")[2] == told
    if not hears:
        assert proposer.unlearned.partition(" ")[0] in ("Learner", "OfRay")


def test_a_search_that_raises_for_an_added_config_does_not_end_the_run(tmp_path: Path) -> None:
    class Strict(Learner):
        def recall(self, trial_id: str, config: dict[str, Any]) -> None:
            raise KeyError("unexpected")

    proposer = proposer_of(tmp_path, DOMAINS, Strict())
    assert added(proposer, 0, {"lr": 0.5}).spec.trial_id in proposer.skipped
    assert proposer.unlearned == f"Strict {UNLEARNED}it raised KeyError: 'unexpected'"
    added(proposer, 1, {"lr": 9.0})
    assert proposer.unlearned.endswith(" run_00001, which runs: it could not have suggested it")


def test_the_run_says_once_that_the_search_does_not_learn_from_an_added_config(
    tmp_path: Path,
) -> None:
    async def run() -> list[str]:
        posted, arrived, told = list[Event](), asyncio.Event(), list[str]()
        proposer = proposer_of(tmp_path, DOMAINS, OfRay())
        thread = thread_of(proposer, posted, arrived, warn=told.append)
        thread.add(0, {"lr": 0.5})
        await until(posted, 1, arrived)
        thread.ask(1)
        await until(posted, 2, arrived)
        await thread.finish(60)
        return told

    assert asyncio.run(run()) == [f"OfRay {UNLEARNED}it takes no config that it has not suggested"]


# -- in the search's thread -----------------------------------------------------------------------


class Slow(Learner):
    """Waits inside `suggest` until released."""

    def __init__(self) -> None:
        super().__init__()
        self.thinks, self.goes = threading.Event(), threading.Event()

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        self.thinks.set()
        self.goes.wait()
        return super().suggest(trial_id)


def thread_of(
    proposer: Proposer,
    posted: list[Event],
    arrived: asyncio.Event,
    warn: Callable[[str], None] = print,
) -> SearchThread:
    def post(event: Event) -> None:
        posted.append(event)
        arrived.set()

    def fail(error: BaseException) -> None:
        raise error

    return SearchThread(
        proposer,
        tasks=free_tasks(),
        post=post,
        fail=fail,
        warn=warn,
        inform=print,
        may_report=lambda: True,
        announces_wait=lambda: False,
    )


async def until(posted: list[Event], count: int, arrived: asyncio.Event) -> None:
    while len(posted) < count:
        await arrived.wait()
        arrived.clear()


def test_a_config_that_is_added_while_the_search_thinks_gets_the_next_number(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        search, posted, arrived = Slow(), list[Event](), asyncio.Event()
        thread = thread_of(proposer_of(tmp_path, DOMAINS, search), posted, arrived)
        thread.ask(0)
        await asyncio.get_running_loop().run_in_executor(None, search.thinks.wait)
        thread.add(0, {"lr": 0.5})
        search.goes.set()
        await until(posted, 2, arrived)
        ids = [one.spec.trial_id for one in posted if isinstance(one, Suggested)]
        assert ids == ["run_00000", "run_00001"]
        thread.close()
        await thread.finish(10)

    asyncio.run(main())


def test_a_search_that_waits_does_not_delay_an_added_config(tmp_path: Path) -> None:
    async def main() -> None:
        search, posted, arrived = Learner(limit=0), list[Event](), asyncio.Event()
        thread = thread_of(proposer_of(tmp_path, DOMAINS, search), posted, arrived)
        thread.ask(0)  # None: not now
        thread.add(0, {"lr": 0.5})
        await until(posted, 1, arrived)
        (first,) = posted
        assert isinstance(first, Suggested)
        assert (first.spec.trial_id, first.spec.is_added) == ("run_00000", True)
        thread.close()
        await thread.finish(10)

    asyncio.run(main())


def test_samples_that_are_added_while_the_search_thinks_are_not_lost(tmp_path: Path) -> None:
    async def main() -> None:
        search, posted, arrived = Slow(), list[Event](), asyncio.Event()
        proposer = proposer_of(tmp_path, DOMAINS, search, num_samples=1)
        thread = thread_of(proposer, posted, arrived)
        thread.ask(0)
        await asyncio.get_running_loop().run_in_executor(None, search.thinks.wait)
        thread.extend(2)
        search.goes.set()
        await until(posted, 1, arrived)
        (first,) = posted
        assert isinstance(first, Suggested)
        assert not first.is_last
        thread.ask(1)
        await until(posted, 2, arrived)
        assert isinstance(posted[1], Suggested)
        assert posted[1].is_last
        thread.close()
        await thread.finish(10)

    asyncio.run(main())
