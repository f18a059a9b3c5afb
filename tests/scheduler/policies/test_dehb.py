"""DEHB against its definition: which trial at which budget, its parents, and whom it replaces."""

import math
import pickle
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import tune
from holdfast.scheduler.effects import Reply, Verdict
from holdfast.scheduler.events import Suggested
from holdfast.scheduler.policies.hyperband import DEHBScheduler, shapes
from holdfast.scheduler.searchers.cube import Vector
from holdfast.scheduler.searchers.dehb import (
    DEHBSearch,
    Evolution,
    Individual,
    RungJob,
)
from holdfast.testing.rehearsal import Rehearsal, trial_spec
from holdfast.trial.errors import InvalidConfig, InvalidSearchSpace

SPACE = {
    "lr": tune.loguniform(1e-4, 1.0),
    "layers": tune.randint(1, 5),
    "net": tune.choice(["plain", {"drop": tune.quniform(0, 0.5, 0.1)}]),
    "fixed": 3,
}


# -- the algorithm, step by step ----------------------------------------------------------------


class Definition:
    """The paper's algorithm with plain lists: for each budget the members and their losses."""

    def __init__(self, evolution: Evolution, max_t: int, factor: int) -> None:
        self.evolution = evolution
        self.levels = len(evolution.populations)
        self.members = [[one.vector for one in p] for p in evolution.populations]
        self.losses = [[math.inf for _ in p] for p in evolution.populations]
        self.turns = [0] * self.levels
        self.done: dict[tuple[int, int], list[tuple[float, Vector]]] = {}
        self.begun: dict[tuple[int, int], int] = {}
        last = self.levels - 1
        self.sizes = []
        for s in range(last, -1, -1):
            sizes = [math.ceil((last + 1) * factor**s / (s + 1))]
            while len(sizes) <= s:
                sizes.append(max(1, sizes[-1] // factor))
            self.sizes.append(sizes)

    def may_begin(self, bracket: int, rung: int) -> bool:
        sizes = self.sizes[bracket % self.levels]
        if rung >= len(sizes) or self.begun.get((bracket, rung), 0) >= sizes[rung]:
            return False
        return rung == 0 or len(self.done.get((bracket, rung - 1), [])) == sizes[rung - 1]

    def is_first_choice(self, bracket: int) -> bool:
        earlier = [(b, r) for b in range(bracket) for r in range(self.levels)]
        return not any(self.may_begin(b, r) for b, r in earlier)

    def may_be(self, bracket: int, rung: int, child: Vector, factor: float) -> bool:
        """Whether `child` could come from any possible parents, with crossover 1."""
        level = bracket % self.levels + rung
        slot = self.turns[level] % len(self.members[level])
        target = self.members[level][slot]
        if bracket == 0:
            return child == (self.promoted(rung) or target)
        if rung == 0:
            pool = [one for i, one in enumerate(self.members[level]) if i != slot]
        else:
            ranked = sorted(
                range(len(self.members[level - 1])), key=lambda i: self.losses[level - 1][i]
            )
            best = ranked[: self.sizes[bracket % self.levels][rung]]
            pool = [self.members[level - 1][i] for i in best]
        if len(pool) < 3:
            pool = [*pool, *(one for members in self.members for one in members)]
            pool.remove(target)
        return len(pool) < 3 or any(
            self.is_mutant(child, base, one, other, factor)
            for base, one, other in permutations(pool, 3)
        )

    def is_mutant(
        self, child: Vector, base: Vector, one: Vector, other: Vector, factor: float
    ) -> bool:
        for got, x, a, b in zip(child, base, one, other, strict=True):
            wanted = x + factor * (a - b)
            if 0 <= wanted < 1 and abs(got - wanted) > 1e-12:
                return False
        return True

    def promoted(self, rung: int) -> Vector | None:
        if rung == 0:
            return None
        ranked = sorted(self.done[0, rung - 1], key=lambda one: one[0])
        at = self.begun.get((0, rung), 0)
        return ranked[at][1] if ranked[at][0] < math.inf else None

    def begin(self, bracket: int, rung: int) -> int:
        level = bracket % self.levels + rung
        self.begun[bracket, rung] = self.begun.get((bracket, rung), 0) + 1
        self.turns[level] += 1
        return (self.turns[level] - 1) % len(self.members[level])

    def end(self, bracket: int, rung: int, slot: int, child: Vector, loss: float) -> None:
        self.done.setdefault((bracket, rung), []).append((loss, child))
        level = bracket % self.levels + rung
        if math.isfinite(loss) and loss <= self.losses[level][slot]:
            self.members[level][slot], self.losses[level][slot] = child, loss


@settings(max_examples=40, deadline=None)
@given(
    st.integers(2, 4),
    st.integers(1, 12),
    st.integers(1, 3),
    st.integers(1, 6),
    st.integers(0, 999),
)
def test_every_trial_is_the_one_of_the_definition_in_whatever_order_trials_end(
    factor: int, max_t: int, dimensions: int, workers: int, seed: int
) -> None:
    evolution = evolving(max_t, factor, dimensions, seed=seed, crossover_prob=1.0)
    definition = Definition(evolution, max_t, factor)
    chance = random.Random(seed)
    under_way: list[tuple[RungJob, Individual]] = []
    for number in range(40):
        while len(under_way) >= workers:
            job, tried = under_way.pop(int(chance.random() * len(under_way)))
            loss = chance.choice([0.0, 1.0, 2.0, chance.random(), math.inf])
            evolution.end(job, replace(tried, loss=loss))
            definition.end(job.bracket, job.rung, job.slot, tried.vector, loss)
        bracket = evolution.next_bracket()
        assert definition.may_begin(bracket.number, bracket.rung)
        assert definition.is_first_choice(bracket.number)
        child = evolution.offspring(bracket, evolution.chance(f"{number}"))
        assert definition.may_be(bracket.number, bracket.rung, child.vector, 0.5)
        job = evolution.begin(bracket, bracket.rung)
        assert job.slot == definition.begin(job.bracket, job.rung)
        under_way.append((job, child))
    known = [[one.vector for one in population] for population in evolution.populations]
    assert known == definition.members


def evolving(
    max_t: int, factor: int, dimensions: int = 4, *, seed: int = 0, crossover_prob: float = 0.5
) -> Evolution:
    return Evolution(
        dimensions=dimensions,
        shapes=shapes(max_t, factor),
        mutation_factor=0.5,
        crossover_prob=crossover_prob,
        seed=seed,
    )


def test_crossover_takes_one_number_of_the_mutant_for_sure_and_others_by_chance() -> None:
    changed = []
    for seed in range(200):
        evolution = evolving(1, 2, 10, seed=seed, crossover_prob=0.3)
        evolution.populations[0] = [Individual(vector=(i**1.3 / 40,) * 10) for i in range(9)]
        bracket = evolution.bracket(1)
        target = evolution.populations[0][0].vector
        child = evolution.offspring(bracket, evolution.chance("child")).vector
        changed.append(sum(a != b for a, b in zip(child, target, strict=True)))
    assert min(changed) >= 1
    assert 3.2 < sum(changed) / 200 < 4.2  # 1 and 0.3 of the other 9


# -- the search ---------------------------------------------------------------------------------


def searching(seed: int = 1, **settings: Any) -> DEHBSearch:
    search = DEHBSearch(max_t=9, seed=seed, **settings)
    assert search.set_search_properties("loss", "min", SPACE)
    return search


Told = tuple[Any, ...]


def tell(search: DEHBSearch, told: Told) -> None:
    match told:
        case ("recall", trial_id, config):
            search.recall(trial_id, config)
        case ("end", trial_id, result, error):
            search.on_trial_complete(trial_id, result, error)
        case _:
            raise AssertionError(told)


def live(search: DEHBSearch, trials: range, workers: int, seed: int) -> Iterator[Told]:
    """Run the search, and return the calls that a restore would replay."""
    chance = random.Random(seed)
    under_way: list[str] = []
    for number in trials:
        trial_id = f"t{number}"
        ends: list[Told] = []
        while len(under_way) >= workers:
            ended = under_way.pop(int(chance.random() * len(under_way)))
            row = {"loss": chance.choice([chance.random(), 1, math.nan])}
            ends.append(("end", ended, row, chance.random() < 0.1))
        for end in ends:
            tell(search, end)
        suggested = ("recall", trial_id, search.suggest(trial_id))
        yield from [*ends, suggested]
        under_way.append(trial_id)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 99), st.integers(1, 9), st.integers(1, 30))
def test_a_restored_search_continues_as_if_nothing_had_happened(
    seed: int, workers: int, before: int
) -> None:
    search = searching(seed)
    history = list(live(search, range(before), workers, seed))
    restored = pickle.loads(pickle.dumps(search))
    assert restored.set_search_properties("loss", "min", SPACE)
    for told in history:
        tell(restored, told)
    following = range(before, before + 15)
    assert list(live(restored, following, workers, 5)) == list(live(search, following, workers, 5))


def test_an_end_that_came_while_the_search_was_thinking_changes_nothing() -> None:
    """The journal has it before the suggestion; the search got it after."""
    search, restored = searching(), searching()
    answers = [("recall", f"t{i}", search.suggest(f"t{i}")) for i in range(9)]
    for i in range(8):
        tell(search, ("end", f"t{i}", {"loss": i}, False))
    tenth = ("recall", "t9", search.suggest("t9"))  # of the next bracket, since t8 still runs
    assert tenth[2]["dehb"] == {"budget": 3, "bracket": 1}
    tell(search, ("end", "t8", {"loss": 8}, False))
    for told in answers:
        tell(restored, told)
    for i in range(9):
        tell(restored, ("end", f"t{i}", {"loss": i}, False))
    tell(restored, tenth)
    for number in range(10, 20):
        assert restored.suggest(f"t{number}") == search.suggest(f"t{number}")


def test_points_come_first_exactly_as_given() -> None:
    search = searching(points_to_evaluate=[{"lr": 0.1, "net": "plain", "layers": 2}, {"lr": 0.3}])
    configs = [search.suggest("t0"), search.suggest("t1")]
    assert configs[0] == {
        "lr": 0.1,
        "layers": 2,
        "net": "plain",
        "dehb": {"budget": 1, "bracket": 0},
    }
    assert configs[1]["lr"] == 0.3


def test_a_failed_trial_is_not_promoted() -> None:
    search = searching()
    first = [search.suggest(f"t{i}") for i in range(9)]
    for i in range(9):
        search.on_trial_complete(f"t{i}", {"loss": math.inf if i % 2 else i}, error=i > 3)
    found = [search.suggest(f"t{i}")["lr"] for i in range(9, 12)]
    assert found[:2] == [first[0]["lr"], first[2]["lr"]]
    assert found[2] not in [config["lr"] for config in first]


def test_evolution_finds_what_chance_does_not() -> None:
    """On a bowl in four dimensions, with as many trials: DEHB against random search."""
    space = {name: tune.uniform(0, 1) for name in "abcd"}

    def loss(config: Any) -> float:
        return float(sum((config[name] - 0.7) ** 2 for name in "abcd"))

    won = 0
    for seed in range(5):
        search = DEHBSearch(max_t=9, seed=seed)
        search.set_search_properties("loss", "min", space)
        losses = []
        for number in range(200):
            config = search.suggest(f"t{number}")
            losses.append(loss(config))
            search.on_trial_complete(f"t{number}", {"loss": losses[-1]})
        rng = random.Random(seed)
        best = min(loss({name: rng.random() for name in "abcd"}) for _ in range(200))
        won += min(losses) < best
    assert won >= 4


def test_what_cannot_be_searched_is_refused_by_its_name() -> None:
    search = DEHBSearch()
    with pytest.raises(InvalidSearchSpace, match="lr: DEHBSearch cannot search a grid_search"):
        search.set_search_properties("loss", "min", {"lr": tune.grid_search([1])})
    with pytest.raises(InvalidConfig, match="param_space has the key 'dehb'"):
        search.set_search_properties("loss", "min", {"dehb": 1, "a": tune.uniform(0, 1)})
    with pytest.raises(InvalidConfig, match="needs a metric"):
        search.set_search_properties(None, None, SPACE)
    with pytest.raises(InvalidConfig, match="pass DEHBSearch to a Tuner"):
        DEHBSearch().suggest("t0")


def test_a_restore_with_other_budgets_is_refused() -> None:
    search = searching()
    with pytest.raises(InvalidConfig, match="had the budget 2"):
        search.recall("t0", {**searching().suggest("t0"), "dehb": {"budget": 2, "bracket": 0}})


# -- the scheduler ------------------------------------------------------------------------------


def verdicts(config: dict[str, Any], rows: Sequence[dict[str, Any]]) -> Iterator[Verdict]:
    run = Rehearsal(policy=DEHBScheduler(), metric="loss", mode="min", scheduler="DEHBScheduler")
    run.handle(Suggested(spec=replace(trial_spec(0), config=config)))
    run.start("t0")
    for row in rows:
        (reply,) = [effect for effect in run.report("t0", row) if isinstance(effect, Reply)]
        yield reply.verdict
    if run.machine.ending is not None:
        raise AssertionError(run.machine.ending.message)


def test_a_trial_is_stopped_at_its_budget_with_the_first_report_that_has_the_metric() -> None:
    config = {"dehb": {"budget": 2, "bracket": 0}}
    rows = [{"loss": 1.0}, {"other": 1.0}, {"loss": 2.0}]
    assert list(verdicts(config, rows)) == [Verdict.CONTINUE, Verdict.CONTINUE, Verdict.STOP]


def test_a_trial_without_a_budget_ends_the_run_and_says_whose_it_is() -> None:
    with pytest.raises(
        AssertionError, match=r"search_alg=DEHBSearch\(\.\.\.\)\), which gives each"
    ):
        list(verdicts({"lr": 1}, [{"loss": 1.0}]))
