"""Population based training against its definition, recomputed from all reports."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.scheduler.effects import Warn
from holdfast.scheduler.policies.pbt import PopulationBasedTraining
from holdfast.scheduler.policy import CloneTrial, Decision, SaveTrial
from holdfast.scheduler.searchers.concurrency_limiter import ConcurrencyLimiter
from holdfast.simulate import simulate
from holdfast.trial.config import TuneConfig
from holdfast.trial.errors import InvalidConfig, InvalidSearchSpace
from holdfast.trial.space import choice, grid_search, loguniform, uniform
from holdfast.trial.trial import Status
from holdfast.tune.search.bohb import TuneBOHB
from tests.scheduler.policies.population import Play

LR = {"lr": uniform(0.001, 2.0)}


def pbt(**given: Any) -> PopulationBasedTraining:
    known = {"time_attr": "training_iteration", "perturbation_interval": 2}
    return PopulationBasedTraining(**{"hyperparam_mutations": LR, **known, **given})


class Definition:
    """The rule of the paper and of Ray: the quantile of each trial by its newest score.

    The score of a clone is not known before its next report.
    """

    def __init__(self, size: int, interval: int, fraction: float) -> None:
        self.size, self.interval, self.fraction = size, interval, fraction
        self.looked: dict[str, tuple[int, float]] = {}
        self.since = dict.fromkeys((f"t{i}" for i in range(size)), 0)
        self.unknown: set[str] = set()

    def sources(self, trial: str, time: int, loss: float) -> set[str]:
        """The trials that may be the source of a clone now."""
        if time - self.since[trial] < self.interval:
            return set()
        self.since[trial] = time
        self.looked[trial] = (time, loss)
        self.unknown.discard(trial)
        order = [f"t{i}" for i in range(self.size) if f"t{i}" in self.looked]
        worst_first = sorted(order, key=lambda one: -self.looked[one][1])
        wanted = math.ceil(len(order) * self.fraction)
        count = wanted if wanted <= len(order) / 2 else math.floor(len(order) / 2)
        if trial not in worst_first[:count]:
            return set()
        return set(worst_first[-count:]) - self.unknown

    def takes_over(self, trial: str, source: str) -> None:
        self.since[trial] = self.since[source]
        self.unknown.add(trial)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 5),
    st.integers(1, 3),
    st.sampled_from([0.1, 0.25, 0.4, 0.5]),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), min_size=1, max_size=40),
)
def test_who_takes_over_from_whom_is_what_the_definition_says(
    size: int, interval: int, fraction: float, reports: list[tuple[int, int]]
) -> None:
    play = Play(pbt(perturbation_interval=interval, quantile_fraction=fraction), size)
    definition = Definition(size, interval, fraction)
    for number, loss in reports:
        trial = f"t{number % size}"
        time = play.run.trial(trial).iteration + 1
        allowed = definition.sources(trial, time, loss)
        clones = [d for d in play.step(trial, loss) if isinstance(d, CloneTrial)]
        assert bool(clones) == bool(allowed)
        if clones:
            (clone,) = clones
            assert clone.source in allowed
            definition.takes_over(trial, clone.source)
            assert play.run.trial(trial).iteration == play.run.trial(clone.source).iteration


def crashed_and_not(
    policy: PopulationBasedTraining, losses: list[int], crash_at: int, *, midway: bool, room: int
) -> list[Play]:
    """The same reports twice; once all processes are killed on the way."""
    plays = [Play(policy, 4, room), Play(policy, 4, room)]
    for play, crashes in zip(plays, (False, True), strict=True):
        for number, loss in enumerate(losses):
            running = play.running()
            play.report(running[number % len(running)], loss)
            if crashes and number == crash_at and midway:
                play.crash()
            play.settle()
            if crashes and number == crash_at and not midway:
                play.crash()
                play.settle()
    return plays


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(0, 9), min_size=4, max_size=40),
    st.integers(0, 39),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_after_a_crash_the_same_is_decided(
    losses: list[int], crash_at: int, midway: bool, synch: bool, asks: bool
) -> None:
    mutations = {"lr": loguniform(0.001, 2.0), "more": (lambda: 3) if asks else [1, 2, 3]}
    policy = pbt(
        hyperparam_mutations=mutations,
        synch=synch,
        custom_explore_fn=(lambda config: {**config, "seen": True}) if asks else None,
    )
    one, other = crashed_and_not(policy, losses, crash_at, midway=midway, room=4)
    assert one.clones() == other.clones()
    assert [one.config(f"t{i}") for i in range(4)] == [other.config(f"t{i}") for i in range(4)]


def test_parameters_that_the_space_does_not_have_are_drawn_before_a_trial_starts() -> None:
    mutations = {"lr": [5.0], "momentum": uniform(0, 1), "net": {"width": lambda: 64}}
    play = Play(pbt(hyperparam_mutations=mutations), 3)
    configs = [play.config(f"t{i}") for i in range(3)]
    assert [one["lr"] for one in configs] == [1.0, 0.5, 0.25]
    assert [one["net"] for one in configs] == [{"width": 64}] * 3
    assert len({one["momentum"] for one in configs}) == 3
    again = Play(pbt(hyperparam_mutations=mutations), 3)
    assert configs == [again.config(f"t{i}") for i in range(3)]
    other = Play(pbt(hyperparam_mutations=mutations), 3, seed=1)
    assert configs != [other.config(f"t{i}") for i in range(3)]
    assert {play.run.trial(f"t{i}").attempt for i in range(3)} == {1}


def test_one_that_is_begun_from_scratch_has_the_parameters_that_were_drawn_for_it() -> None:
    play = Play(pbt(hyperparam_mutations={"momentum": uniform(0, 1)}), 1)
    before = play.config("t0")
    assert play.run.trial("t0").spec.tag == f"0_lr=1,momentum={before['momentum']:.4g}"
    play.run.ends("t0")
    play.run.resume(finished="restart")
    assert play.config("t0") == before


def test_users_own_exploration_has_the_last_word() -> None:
    def explore(config: dict[str, Any]) -> dict[str, Any]:
        return {**config, "lr": round(config["lr"], 1), "note": "explored"}

    play = Play(pbt(custom_explore_fn=explore), 2)
    for trial_id, loss in (("t0", 1.0), ("t1", 2.0)) * 2:
        play.step(trial_id, loss)
    ((clone, source, config),) = play.clones()
    assert (clone, source, config["note"]) == ("t1", "t0", "explored")
    assert config["lr"] == round(config["lr"], 1)
    assert play.run.trial("t1").status is Status.RUNNING


@pytest.mark.parametrize("wrong", [None, 3, [1]])
def test_an_exploration_that_returns_no_config_is_reported(wrong: object) -> None:
    policy = pbt(custom_explore_fn=lambda config: wrong)
    question = {"config": {"lr": 1.0}, "asked": {}, "source": "t1"}
    with pytest.raises(InvalidConfig, match="custom_explore_fn returned"):
        policy.answer(question)


def test_an_exploration_that_returns_a_domain_is_reported() -> None:
    policy = pbt(custom_explore_fn=lambda config: {**config, "deep": [uniform(0, 1)]})
    with pytest.raises(InvalidSearchSpace, match="custom_explore_fn returned a domain or a grid"):
        policy.answer({"config": {"lr": 1.0}, "asked": {}, "source": "t1"})


def test_nothing_changes_before_the_burn_in_is_over() -> None:
    play = Play(pbt(burn_in_period=5), 2)
    for _ in range(4):
        play.step("t0", 1.0)
        play.step("t1", 2.0)
    assert play.clones() == []
    play.step("t0", 1.0)
    play.step("t1", 2.0)
    assert [(clone, source) for clone, source, _ in play.clones()] == [("t1", "t0")]


def test_one_that_has_diverged_takes_over_and_no_one_takes_over_from_it() -> None:
    play = Play(pbt(perturbation_interval=1), 2)
    play.step("t0", math.nan)
    play.step("t1", math.nan)
    assert play.clones() == []
    play.step("t1", 5.0)
    play.step("t0", math.nan)
    assert [(clone, source) for clone, source, _ in play.clones()] == [("t0", "t1")]


def test_trials_that_have_ended_do_not_count() -> None:
    play = Play(pbt(perturbation_interval=1), 3)
    for trial_id, loss in (("t0", 1.0), ("t1", 2.0), ("t2", 3.0)):
        play.step(trial_id, loss)
    play.run.ends("t0")
    play.decided.clear()
    play.step("t1", 2.0)
    play.step("t2", 3.0)
    assert [(clone, source) for clone, source, _ in play.clones()] == [("t2", "t1")]


def test_no_one_takes_over_what_one_had_saved_before_it_was_none_of_the_best() -> None:
    """A class trainable saves itself on request; t1 is the best again when t0 has ended."""
    play = Play(pbt(perturbation_interval=1), 3, saves_when_told=True)

    def step(trial_id: str, loss: float) -> list[Decision]:
        play.run.report(trial_id, {"loss": loss})
        decided = [one for answer in play.run.machine.answers for one in answer]
        if SaveTrial(trial_id=trial_id) in decided:
            play.run.save(trial_id)
        return decided

    assert step("t2", 9.0) == []
    assert step("t1", 1.0) == [SaveTrial(trial_id="t1")]
    assert step("t0", 0.5) == [SaveTrial(trial_id="t0")]
    assert step("t1", 1.0) == []
    play.run.ends("t0")
    assert step("t2", 9.0) == []
    assert step("t1", 1.0) == [SaveTrial(trial_id="t1")]
    (clone,) = step("t2", 9.0)
    assert isinstance(clone, CloneTrial)
    assert clone.source == "t1"


def test_class_trainables_of_the_best_are_asked_to_save_themselves() -> None:
    play = Play(pbt(perturbation_interval=1), 2, saves_when_told=True)
    assert play.step("t0", 1.0) == []
    (clone,) = play.step("t1", 2.0)
    assert isinstance(clone, CloneTrial)
    assert play.step("t0", 1.0) == [SaveTrial(trial_id="t0")]


def test_one_that_takes_over_and_has_nothing_left_to_do_has_reported_all_the_same() -> None:
    play = Play(pbt(perturbation_interval=1), 2)
    play.step("t0", 1.0)
    play.step("t1", 2.0)
    assert play.clones() != []
    play.run.ends("t1")
    assert play.run.trial("t1").status is Status.TERMINATED
    assert play.run.trial("t1").row == {"loss": 2.0}


def test_where_there_is_less_room_than_trials_they_take_turns() -> None:
    play = Play(pbt(hyperparam_mutations=LR, quantile_fraction=0.0), 5, room=2)
    for number in range(60):
        running = play.running()
        play.step(running[number % len(running)], float(number))
    iterations = [trial.iteration for trial in play.run.machine.trials.values()]
    assert sum(iterations) == 60
    assert max(iterations) - min(iterations) <= 2 * 2


@pytest.mark.parametrize("explore", [None, lambda config: config])
@pytest.mark.parametrize("most", [None, 2])
def test_one_that_takes_over_again_and_again_keeps_no_one_from_the_room(
    most: int | None, explore: Any
) -> None:
    """On one worker, where the best are those with the least training."""
    search = TuneBOHB(seed=1)
    found = simulate(
        lambda config, iteration: config["lr"] + iteration,
        param_space=LR,
        tune_config=TuneConfig(
            metric="loss",
            mode="min",
            num_samples=4,
            scheduler=pbt(custom_explore_fn=explore),
            search_alg=search if most is None else ConcurrencyLimiter(search, most),
            time_budget_s=500,
        ),
        workers=1,
        iterations=6,
    )
    assert found.reason == "done"
    assert [trial.iteration for trial in found.trials] == [6, 6, 6, 6]


def test_no_one_is_paused_where_there_is_room_for_all() -> None:
    play = Play(pbt(quantile_fraction=0.0), 3)
    for number in range(12):
        play.step(f"t{number % 3}", 1.0)
    assert {trial.attempt for trial in play.run.machine.trials.values()} == {1}


def test_one_that_has_saved_nothing_since_it_was_looked_at_does_not_give_way_yet() -> None:
    play = Play(pbt(quantile_fraction=0.0), 2, room=1)
    play.step("t0", 1.0)
    play.run.report("t0", {"loss": 1.0})
    assert play.run.trial("t0").status is Status.RUNNING
    play.step("t0", 1.0)
    assert play.running() == ["t1"]


def test_in_step_all_wait_for_each_other_and_change_together() -> None:
    play = Play(pbt(synch=True, quantile_fraction=0.5), 4, room=2)
    for trial_id, loss in (("t0", 1.0), ("t1", 2.0), ("t2", 3.0)):
        play.step(trial_id, loss)
        play.step(trial_id, loss)
    play.step("t3", 4.0)
    assert (play.running(), play.clones()) == (["t3"], [])
    play.step("t3", 4.0)
    assert [clone for clone, _, _ in play.clones()] == ["t3", "t2"]
    assert {source for _, source, _ in play.clones()} <= {"t0", "t1"}
    assert play.running() == ["t0", "t1"]
    assert all(trial.iteration == 2 for trial in play.run.machine.trials.values())


def test_in_step_there_must_be_an_end_of_the_trials() -> None:
    with pytest.raises(InvalidConfig, match="with num_samples=-1 there is always one more"):
        Play(pbt(synch=True), 2, num_samples=-1)


def test_that_trials_end_before_anybody_is_compared_is_reported_once() -> None:
    play = Play(pbt(perturbation_interval=4), 3)
    for trial_id in ("t0", "t1"):
        play.step(trial_id, 1.0)
        play.step(trial_id, 1.0)
    told = [
        effect.text
        for trial_id in ("t0", "t1")
        for effect in play.run.ends(trial_id)
        if isinstance(effect, Warn)
    ]
    (text,) = told
    assert "train_t0 ended before PopulationBasedTraining" in text
    assert "perturbation_interval=4, in training_iteration" in text


def test_a_trial_without_a_checkpoint_in_the_first_interval_is_reported_at_once() -> None:
    play = Play(pbt(), 2)
    play.run.report("t0", {"loss": 1.0})
    play.run.report("t0", {"loss": 1.0})
    assert play.run.machine.ending is not None
    assert (
        "train_t0 has reported none until training_iteration=2" in play.run.machine.ending.message
    )


@pytest.mark.parametrize("synch", [False, True])
def test_a_report_without_the_metric_ends_the_run_unless_they_may_lack_it(synch: bool) -> None:
    play = Play(pbt(synch=synch, require_attrs=False), 2)
    play.step("t0", 1.0)
    assert play.run.report("t1", {"other": 1.0}) != []
    assert play.run.machine.ending is None
    strict = Play(pbt(synch=synch), 2)
    strict.step("t0", 1.0)
    strict.run.report("t1", {"los": 1.0})
    assert strict.run.machine.ending is not None
    assert (
        "a report has no number 'loss'. Did you mean 'los'?" in strict.run.machine.ending.message
    )


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"quantile_fraction": 0.6}, "quantile_fraction=0.6"),
        ({"quantile_fraction": -0.1}, "from 0 to 0.5"),
        ({"hyperparam_mutations": None}, "would ever change; pass {'lr': [...]}, or"),
        ({"hyperparam_mutations": {}}, "no config would ever change"),
        ({"hyperparam_mutations": {"lr": 3}}, "lr is 3"),
        ({"hyperparam_mutations": {"lr": []}}, "lr is []"),
        ({"hyperparam_mutations": {"lr": grid_search([1, 2])}}, "lr is {'grid_search'"),
        ({"hyperparam_mutations": ["lr"]}, "pass a dict"),
        ({"hyperparam_mutations": {"net": {"act": [math.sin]}}}, "net/act became"),
        ({"hyperparam_mutations": {"act": choice([math.sin])}}, "act became"),
        ({"perturbation_interval": 0}, "pass a number above 0"),
        ({"perturbation_interval": -1}, "perturbation_interval=-1"),
        ({"perturbation_interval": math.inf}, "perturbation_interval=inf"),
        ({"burn_in_period": -1}, "burn_in_period=-1"),
        ({"resample_probability": 1.5}, "from 0 to 1"),
        ({"perturbation_factors": ()}, "perturbation_factors=()"),
        ({"perturbation_factors": (0, 2)}, "pass numbers above 0"),
        ({"custom_explore_fn": 3}, "custom_explore_fn=3"),
        ({"mode": "best"}, "pass 'min' or 'max'"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidConfig) as refusal:
        pbt(**settings)
    assert told in str(refusal.value)
