"""Searches that wrap another one: a limit of concurrent trials, and repeated configs."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.scheduler.searchers.concurrency_limiter import (
    ConcurrencyLimiter,
    Repeater,
)
from holdfast.scheduler.searchers.dehb import DEHBSearch
from holdfast.scheduler.searchers.searcher import BasicVariantGenerator, Searcher
from holdfast.trial.errors import InvalidConfig
from holdfast.tune.search.bohb import TuneBOHB


class Counter(Searcher):
    """Suggests x = 0, 1, ... up to a limit, and records its calls."""

    def __init__(self, limit: int = 100, waits: bool = False) -> None:
        super().__init__(metric="loss", mode="min")
        self.limit = limit
        self.waits = waits
        self.number = 0
        self.heard: list[tuple[Any, ...]] = []

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        if self.waits and self.number > sum(what[0] == "end" for what in self.heard):
            return None
        if self.number == self.limit:
            return self.FINISHED
        self.recall(trial_id, {"x": self.number})
        return {"x": self.number - 1}

    def recall(self, trial_id: str, config: dict[str, Any]) -> None:
        self.number += 1
        self.heard.append(("suggested", trial_id, config))

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self.heard.append(("result", trial_id, result["loss"]))

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        self.heard.append(("end", trial_id, result, error))

    @property
    def ends(self) -> list[tuple[Any, ...]]:
        return [what[1:] for what in self.heard if what[0] == "end"]


class OfBefore(Searcher):
    """A searcher as users have written them: without newer arguments."""

    def set_search_properties(self, metric: Any, mode: Any, config: Any) -> bool:  # type: ignore[override]
        self.metric, self.mode = metric, mode
        return True

    def suggest(self, trial_id: str) -> dict[str, Any]:
        return {}


def loss(value: Any) -> dict[str, Any]:
    return {"loss": value}


def suggested(search: Searcher, *numbers: int) -> list[Any]:
    return [search.suggest(f"t{number}") for number in numbers]


# -- so many at once ----------------------------------------------------------------------------


def test_trials_of_before_a_restore_count_and_only_once() -> None:
    limiter = ConcurrencyLimiter(Counter(), max_concurrent=2)
    for number in range(3):
        limiter.recall(f"t{number}", {"x": number})
    assert limiter.suggest("t3") is None
    limiter.on_trial_complete("t0", loss(1))
    limiter.on_trial_complete("t0", loss(1))
    assert limiter.suggest("t3") is None
    limiter.on_trial_complete("t1", loss(1))
    assert suggested(limiter, 3, 4) == [{"x": 3}, None]


def test_a_trial_that_it_does_not_know_frees_no_place() -> None:
    limiter = ConcurrencyLimiter(Counter(), max_concurrent=1)
    limiter.suggest("t0")
    limiter.on_trial_complete("stranger", loss(1))
    assert limiter.suggest("t1") is None


def test_a_batch_is_reported_together() -> None:
    counter = Counter()
    limiter = ConcurrencyLimiter(counter, max_concurrent=2, batch=True)
    suggested(limiter, 0, 1)
    limiter.on_trial_complete("t1", loss(1))
    assert limiter.suggest("t2") is None
    assert counter.ends == []
    limiter.on_trial_complete("t0", None, error=True)
    assert counter.ends == [("t1", loss(1), False), ("t0", None, True)]
    assert suggested(limiter, 2, 3, 4) == [{"x": 2}, {"x": 3}, None]


def test_a_batch_that_cannot_fill_up_is_reported_when_the_search_waits_for_it() -> None:
    counter = Counter(waits=True)
    limiter = ConcurrencyLimiter(counter, max_concurrent=2, batch=True)
    assert suggested(limiter, 0, 1) == [{"x": 0}, None]
    limiter.on_trial_complete("t0", loss(1))
    assert suggested(limiter, 1) == [{"x": 1}]


def test_the_end_of_the_inner_search_and_its_reports_pass_through() -> None:
    counter = Counter(limit=1)
    limiter = ConcurrencyLimiter(counter, max_concurrent=5)
    assert suggested(limiter, 0, 1) == [{"x": 0}, Searcher.FINISHED]
    limiter.on_trial_result("t0", loss(3))
    assert ("result", "t0", 3) in counter.heard


def test_a_search_that_keeps_to_a_limit_by_itself_is_left_to_it() -> None:
    class Keeps(Counter):
        most = 0

        def set_max_concurrency(self, max_concurrent: int) -> bool:
            self.most = max_concurrent
            return True

    inner = Keeps()
    limiter = ConcurrencyLimiter(inner, max_concurrent=1)
    assert inner.most == 1
    assert suggested(limiter, 0, 1) == [{"x": 0}, {"x": 1}]


@pytest.mark.parametrize("most", [0, -1, 1.5, True, None])
def test_a_limit_that_lets_nothing_run_is_refused(most: Any) -> None:
    with pytest.raises(InvalidConfig, match="max_concurrent must be 1 or more"):
        ConcurrencyLimiter(Counter(), max_concurrent=most)


def test_what_cannot_be_limited_or_repeated_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="set only one limit"):
        ConcurrencyLimiter(ConcurrencyLimiter(Counter(), 1), 1)
    with pytest.raises(InvalidConfig, match=r"Repeater needs a tune\.search\.Searcher"):
        Repeater(BasicVariantGenerator())  # type: ignore[arg-type]
    with pytest.raises(InvalidConfig, match="repeat must be 1 or more"):
        Repeater(Counter(), repeat=0)


def test_searches_of_before_are_given_only_what_they_know() -> None:
    inner = OfBefore()
    assert ConcurrencyLimiter(inner, 1).set_search_properties("loss", "min", {}, seed=1)
    assert (inner.metric, inner.mode) == ("loss", "min")


# -- several times each -------------------------------------------------------------------------


def test_the_number_is_left_out_of_the_config_where_it_is_not_wanted() -> None:
    repeater = Repeater(Counter(), repeat=2, set_index=False)
    assert suggested(repeater, 0, 1, 2) == [{"x": 0}, {"x": 0}, {"x": 1}]
    assert repeater.repeats == 2


def test_trials_that_failed_or_have_no_number_are_left_out_of_the_mean() -> None:
    counter = Counter()
    repeater = Repeater(counter, repeat=4)
    suggested(repeater, 0, 1, 2, 3)
    repeater.on_trial_complete("t0", None, error=True)
    repeater.on_trial_complete("t1", loss(math.nan))
    repeater.on_trial_complete("t2", {"other": 1})
    repeater.on_trial_complete("t3", loss(7))
    assert counter.ends == [("t0", loss(7.0), False)]


def test_a_config_that_fails_each_time_has_failed() -> None:
    counter = Counter()
    repeater = Repeater(counter, repeat=2)
    suggested(repeater, 0, 1)
    repeater.on_trial_complete("t0", loss(1), error=True)
    repeater.on_trial_complete("t1", None)
    assert counter.ends == [("t0", None, True)]


@pytest.mark.parametrize("set_index", [True, False])
def test_a_restored_repeater_resumes_in_the_middle_of_a_config(set_index: bool) -> None:
    first = Repeater(Counter(), repeat=3, set_index=set_index)
    configs = suggested(first, 0, 1, 2, 3)
    again = Counter()
    second = Repeater(again, repeat=3, set_index=set_index)
    for number, config in enumerate(configs):
        second.recall(f"t{number}", config)
    assert suggested(second, 4, 5, 6) == suggested(first, 4, 5, 6)
    second.on_trial_complete("t0", loss(1))
    second.on_trial_complete("t1", loss(2))
    second.on_trial_complete("t2", loss(3))
    assert again.ends == [("t0", loss(2.0), False)]
    assert [what for what in again.heard if what[1] == "t3"] == [("suggested", "t3", {"x": 1})]


def test_several_metrics_have_a_mean_each() -> None:
    class Two(Counter):
        def __init__(self) -> None:
            super().__init__()
            self.metric, self.mode = ["loss", "size"], ["min", "min"]

    counter = Two()
    repeater = Repeater(counter, repeat=2)
    suggested(repeater, 0, 1)
    repeater.on_trial_complete("t0", {"loss": 1, "size": 2})
    repeater.on_trial_complete("t1", {"loss": 3, "size": 4})
    assert counter.ends == [("t0", {"loss": 2.0, "size": 3.0}, False)]


def test_a_repeater_that_does_not_know_what_to_average_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="needs a metric to average"):
        Repeater(OfBefore()).set_search_properties(None, None, {})


def test_a_repeater_in_a_limiter_counts_trials() -> None:
    limiter = ConcurrencyLimiter(Repeater(Counter(), repeat=2), max_concurrent=3)
    answers = suggested(limiter, 0, 1, 2, 3)
    assert [answer and answer["x"] for answer in answers] == [0, 0, 1, None]
    assert limiter.repeats == 2


@given(
    st.lists(st.integers(-3, 4), max_size=40),
    st.integers(0, 40),
    st.integers(1, 4),
    st.integers(1, 3),
    st.booleans(),
)
def test_cut_off_anywhere_they_continue_as_if_nothing_had_happened(
    actions: list[int], cut: int, most: int, repeat: int, batch: bool
) -> None:
    """An action below 0 asks, any other ends one of the running trials."""

    def make() -> ConcurrencyLimiter:
        return ConcurrencyLimiter(Repeater(Counter(waits=batch), repeat), most, batch=batch)

    def tell_end(search: Searcher, trial_id: str) -> None:
        search.on_trial_complete(trial_id, loss(1), error=trial_id.endswith("3"))

    first, second = make(), make()
    live: list[str] = []
    made = 0
    for step, action in enumerate(actions):
        if action >= 0 and live:
            ended = live.pop(action % len(live))
            for search in (first, second):
                tell_end(search, ended)
        if action >= 0:
            continue
        answer = first.suggest(f"t{made}")
        if step < cut and isinstance(answer, dict):
            second.recall(f"t{made}", answer)
        elif step >= cut:
            assert second.suggest(f"t{made}") == answer
        if isinstance(answer, dict):
            live.append(f"t{made}")
            made += 1


# -- what was tried elsewhere -------------------------------------------------------------------


def test_results_that_were_had_elsewhere_are_reported_with_their_failures() -> None:
    class Takes(Counter):
        def add_evaluated_point(
            self,
            parameters: Any,
            value: float,
            error: bool = False,
            pruned: bool = False,
            intermediate_values: Any = None,
        ) -> None:
            self.heard.append((parameters, value, error))

    class Found:
        def __init__(self, config: Any, metrics: Any, error: Any = None) -> None:
            self.config, self.metrics, self.error = config, metrics, error

    takes = Takes()
    failed = Found({"x": 3}, None, error=RuntimeError("no"))
    limiter = ConcurrencyLimiter(takes, 1)
    limiter.add_evaluated_trials([Found({"x": 1}, loss(5)), Found({"x": 2}, {}), failed], "loss")
    assert takes.heard == [({"x": 1}, 5, False), ({"x": 3}, None, True)]
    with pytest.raises(InvalidConfig, match="Counter does not support add_evaluated_point"):
        Counter().add_evaluated_trials(Found({"x": 1}, loss(5)), "loss")


@pytest.mark.parametrize("search", [BasicVariantGenerator, DEHBSearch, TuneBOHB])
@pytest.mark.parametrize("points", [{"lr": 0.1}, [0.1], "lr"])
def test_points_that_are_no_list_of_configs_are_refused(search: Any, points: Any) -> None:
    with pytest.raises(InvalidConfig, match="points_to_evaluate must be a list of configs"):
        search(points_to_evaluate=points)


class OfRay(Counter):
    """A searcher as in Ray's documentation."""

    def on_trial_complete(  # type: ignore[override]
        self, trial_id: str, result: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        super().on_trial_complete(trial_id, result, **kwargs)


def test_the_end_of_a_trial_is_handed_on_by_name() -> None:
    for wrap in (lambda one: ConcurrencyLimiter(one, 1), lambda one: Repeater(one, 1)):
        inner = OfRay()
        search = wrap(inner)
        search.set_search_properties("loss", "min", {})
        search.suggest("t0")
        search.on_trial_complete("t0", loss(1.0))
        assert inner.ends == [("t0", loss(1.0), False)]
