"""Population based training against its definition, recomputed from all reports."""

import json
import math
from collections.abc import Mapping
from typing import Any, Self

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.scheduler.effects import Launch, Warn
from holdfast.scheduler.events import CheckpointLost, ExperimentSpec, TrialStopOrdered
from holdfast.scheduler.policies import members
from holdfast.scheduler.policies.goal import Chance
from holdfast.scheduler.policies.members import Member
from holdfast.scheduler.policies.pbt import PopulationBasedTraining, ScheduleReplay, schedule_of
from holdfast.scheduler.policies.population import Proposal, explore, fill, mutations_of
from holdfast.scheduler.policy import CloneTrial, Decision, Observation, SaveTrial, View
from holdfast.scheduler.searchers.concurrency_limiter import ConcurrencyLimiter
from holdfast.simulate import simulate
from holdfast.testing.rehearsal import Rehearsal
from holdfast.trial.config import TuneConfig
from holdfast.trial.errors import InvalidConfig, InvalidSearchSpace
from holdfast.trial.space import (
    choice,
    loguniform,
    quniform,
    randint,
    randn,
    sample_from,
    uniform,
)
from holdfast.trial.trial import Status, Trial
from holdfast.tune.search.bohb import TuneBOHB
from tests.scheduler.policies.population import Play


class SortedEachTime:
    """The members as the definition has them: each question sorts all trials as they are now."""

    def __init__(self, quantile: float, *, synch: bool) -> None:
        self.quantile, self.synch = quantile, synch
        self.members: dict[str, Member] = {}
        self.trials: Mapping[str, Trial] = {}

    def __getitem__(self, trial_id: str) -> Member:
        return self.members[trial_id]

    def add(self, trial: Trial) -> None:
        self.members[trial.trial_id] = Member(number=len(self.members))

    def update(self, trial: Trial) -> None:
        pass

    def rank(self, trial: Trial) -> tuple[bool, bool]:
        worst, best = self.extremes()
        return trial.trial_id in worst, trial.trial_id in best

    def follow(self, before: Trial, trial: Trial) -> None:
        pass

    def extremes(self) -> tuple[list[str], list[str]]:
        scores = {
            trial_id: member.score
            for trial_id, member in self.members.items()
            if member.score is not None and not self.trials[trial_id].status.is_final
        }
        order = sorted(scores, key=scores.__getitem__)
        count = min(math.ceil(len(order) * self.quantile), len(order) // 2)
        return order[:count], order[len(order) - count :]

    @property
    def worst(self) -> list[str]:
        return self.extremes()[0]

    def sources(self) -> list[str]:
        return [one for one in self.extremes()[1] if self.can_be_cloned(one)]

    @property
    def best_sources(self) -> int:
        return len(self.sources())

    def best_source(self, number: int) -> str:
        return self.sources()[number]

    def can_be_cloned(self, trial_id: str) -> bool:
        member, trial = self.members[trial_id], self.trials[trial_id]
        newest = trial.newest_checkpoint
        if newest is None or trial.origin is not None or member.score == -math.inf:
            return False
        return self.synch or newest.iteration >= member.good_from

    def paused(self, most: int | None = None) -> list[str]:
        several = [one for one in self.members if self.trials[one].status is Status.PAUSED]
        return sorted(several, key=lambda one: self.members[one].time)[:most]


class Defined(PopulationBasedTraining):
    """Population based training over members that are sorted each time."""

    def begun(self, spec: ExperimentSpec) -> Self:
        fresh = super().begun(spec)
        fresh._members = SortedEachTime(self._quantile, synch=self._synch)  # type: ignore[assignment]
        return fresh

    def decide(self, view: View, event: Observation) -> list[Decision]:
        self._members.trials = view.trials  # type: ignore[attr-defined]
        return list(super().decide(view, event))


Defined.__name__ = PopulationBasedTraining.__name__  # it is in messages

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["report"] * 12 + ["wait", "fail", "end", "stop", "lose", "crash"]),
        st.integers(0, 7),
        st.integers(0, 5) | st.just(math.inf),
    ),
    min_size=20,
    max_size=60,
)


@settings(max_examples=20)
@given(STEPS, st.sampled_from([3, 8]), st.sampled_from([8, 99, 0]), st.sampled_from([0.25, 0.5]))
def test_a_population_decides_as_if_it_sorted_all_trials_at_each_comparison(
    steps: list[tuple[str, int, float]], room: int, samples: int, fraction: float
) -> None:
    """`samples`: the search ends with the last trial, or later; 0: they all change together."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(members, "_MOST", 3)
        plays = [
            Play(
                kind(
                    time_attr="training_iteration",
                    perturbation_interval=1,
                    quantile_fraction=fraction,
                    hyperparam_mutations={"lr": uniform(0.001, 2.0)},
                    synch=not samples,
                ),
                size=8,
                room=room,
                num_samples=samples or 8,
            )
            for kind in (PopulationBasedTraining, Defined)
        ]
        for step, which, loss in steps:
            for play in plays:
                take(play, step, which, loss)
            ours, defined = plays
            assert ours.decided == defined.decided


def take(play: Play, step: str, which: int, loss: float) -> None:
    """One step of trial number `which` of those that run."""
    run, running = play.run, play.running()
    if step == "crash":
        play.crash()
    elif running:
        trial_id = running[which % len(running)]
        follow = play._follow
        match step:
            case "report" | "wait":
                play.report(trial_id, loss)
            case "fail":
                follow(run.fails(trial_id))
            case "end":
                follow(run.returns(trial_id))
            case "stop":
                follow(run.handle(TrialStopOrdered(trial_id=trial_id, by="ann")))
            case "lose" if checkpoints := run.trial(trial_id).checkpoints:
                lost = checkpoints[-1].index
                event = CheckpointLost(trial_id=trial_id, index=lost, reason="gone", in_run=True)
                follow(run.handle(event))
    if step != "wait":
        play.settle()


def line(tag: str, source: str, iteration: int, at: int, before: float, after: float) -> str:
    return json.dumps([tag, source, iteration, at, {"lr": before}, {"lr": after}]) + "\n"


LOG = line("1_a", "2_b", 3, 4, 0.1, 0.2) + line("0_c", "1_a", 9, 8, 0.2, 0.3)


def test_the_schedule_goes_through_those_that_the_trial_took_over_from() -> None:
    schedule = schedule_of(LOG)
    assert schedule.first == {"lr": 0.1}
    assert schedule.changes == ((4, {"lr": 0.2}), (8, {"lr": 0.3}))
    assert ScheduleReplay(schedule).config == {"lr": 0.1}


def test_what_was_overwritten_by_a_later_takeover_does_not_count() -> None:
    """Ray leaves the earlier history of a trial in its file."""
    schedule = schedule_of(line("0_c", "3_d", 2, 2, 0.7, 0.8) + LOG)
    assert schedule.first == {"lr": 0.1}
    assert len(schedule.changes) == 2


@pytest.mark.parametrize("log", ["", "\n", "{}", "[1, 2]", "no json", '["a", "b", 1, 2, 3, {}]'])
def test_what_is_not_a_log_is_refused(log: str) -> None:
    with pytest.raises(ValueError, match=r"log of a trial's policy|Expecting value"):
        schedule_of(log)


def replayed(**spec: Any) -> Rehearsal:
    run = Rehearsal(policy=ScheduleReplay(schedule_of(LOG)), scheduler="Replay", **spec)
    run.suggest()
    run.start("t0")
    return run


def at(run: Rehearsal, iteration: int) -> float:
    """The config with which the trial trains after this iteration."""
    while run.trial("t0").iteration < iteration:
        run.report("t0", {"loss": 1.0}, checkpoint=True)
        if run.trial("t0").status is not Status.RUNNING:
            (launch,) = [e for e in run.ends("t0") if isinstance(e, Launch)]
            assert launch.checkpoint is not None
            run.start("t0")
    return float(run.trial("t0").config["lr"])


def test_each_config_begins_where_it_began_in_the_population() -> None:
    run = replayed()
    assert [at(run, iteration) for iteration in (0, 3, 4, 7, 8, 12)] == [
        *(0.1, 0.1),
        *(0.2, 0.2),
        *(0.3, 0.3),
    ]


def test_a_crash_changes_nothing_about_the_schedule() -> None:
    run = replayed()
    at(run, 5)
    run.crash()
    run.resume()
    run.start("t0")
    assert [at(run, iteration) for iteration in (5, 7, 8)] == [0.2, 0.2, 0.3]


def test_a_second_trial_ends_the_run() -> None:
    run = replayed()
    run.suggest()
    assert run.machine.ending is not None
    assert "num_samples=1" in run.machine.ending.message


def explored(
    mutations: dict[str, Any], config: dict[str, Any], *, resample: float, times: int = 40
) -> list[Mapping[str, Any]]:
    made = mutations_of(mutations)
    return [
        explore(
            config, made, Chance(f"{n}"), resample_probability=resample, factors=(1.2, 0.8)
        ).config
        for n in range(times)
    ]


@pytest.mark.parametrize(
    ("mutation", "value", "near"),
    [
        (uniform(0.1, 2.0), 1.0, {1.2, 0.8}),
        (uniform(0.1, 2.0), 1.9, {2.0, 1.9 * 0.8}),
        (uniform(0.1, 2.0), 50.0, {2.0}),
        (uniform(0.1, 20.0), 10, {12.0, 8.0}),
        (quniform(0.0, 0.5, 0.1), 0.3, {0.4, 0.2}),
        (randn(0.0, 1.0), -1.0, {-1.2, -0.8}),
        (randint(1, 9), 4, {5, 3}),
        (randint(1, 9), 8, {8, 6}),
        (randint(1, 9), 1, {2, 1}),
        (["relu", "tanh", "elu"], "tanh", {"relu", "elu"}),
        (["relu", "tanh", "elu"], "elu", {"tanh", "elu"}),
        ((16, 32, 64), 32, {16, 64}),
        (choice(["sgd", "adam", "lion"]), "adam", {"sgd", "lion"}),
        (lambda: 0, 10, {12, 8}),
        (lambda: 0, 4, {5, 3}),
        (lambda: 0.0, 10.0, {12.0, 8.0}),
    ],
)
def test_a_value_moves_a_little_and_stays_in_its_domain(
    mutation: Any, value: Any, near: set[Any]
) -> None:
    found = [one["x"] for one in explored({"x": mutation}, {"x": value}, resample=0.0)]
    assert set(found) == near
    assert {type(one) for one in found} == {type(one) for one in near}


@pytest.mark.parametrize("value", ["gelu", None, math.nan])
def test_what_has_no_neighbours_is_drawn_again(value: Any) -> None:
    mutations = {"act": ["relu", "tanh"], "lr": uniform(0, 1)}
    found = explored(mutations, {"act": value, "lr": value}, resample=0.0)
    assert {one["act"] for one in found} == {"relu", "tanh"}
    assert all(0 <= one["lr"] <= 1 for one in found)


def test_what_is_drawn_again_lies_in_its_domain() -> None:
    mutations = {"lr": loguniform(1e-4, 1e-1), "nested": choice([uniform(0, 1), "off"])}
    found = explored(mutations, {"lr": 7.0, "nested": 0.5}, resample=1.0)
    assert all(1e-4 <= one["lr"] <= 1e-1 for one in found)
    assert len({one["lr"] for one in found}) == len(found)
    assert "off" in {one["nested"] for one in found}


def test_one_of_two_values_is_drawn_again_as_often_as_configured() -> None:
    found = explored({"x": uniform(0, 2)}, {"x": 1.0}, resample=0.25, times=400)
    assert 70 <= sum(one["x"] not in (1.2, 0.8) for one in found) <= 130


def test_what_a_config_lacks_is_filled_and_the_users_functions_are_left_to_be_asked() -> None:
    mutations = mutations_of({"lr": uniform(0, 1), "net": {"width": lambda: 3, "act": ["a"]}})
    filled = fill({"lr": 5.0}, mutations, Chance("0"))
    assert filled.config == {"lr": 5.0, "net": {"act": "a"}}
    assert filled.asked == {"functions": ["net/width"]}


@pytest.mark.parametrize("config", [{"net": "none"}, {"net": None}, {"net": {"cell": 3}}])
def test_what_stands_inside_of_a_choice_is_given_only_to_a_config_that_has_chosen_it(
    config: dict[str, Any],
) -> None:
    mutations = mutations_of({"net": {"cell": {"width": [4, 8], "act": lambda: "relu"}}})
    assert fill(config, mutations, Chance("0")) == Proposal(config=config)
    moved = explore(config, mutations, Chance("0"), resample_probability=0.5, factors=(1.2,))
    assert moved == Proposal(config=config)


@pytest.mark.parametrize(
    ("function", "value"),
    [(lambda: 5, 5), (sample_from(lambda spec: spec.config.lr * 2), 2.0)],
)
def test_functions_of_the_users_are_asked_with_the_config_as_it_is(
    function: Any, value: Any
) -> None:
    policy = PopulationBasedTraining(hyperparam_mutations={"x": function})
    policy._mutations = mutations_of({"x": function})
    asked = {"config": {"lr": 1.0}, "asked": {"functions": ["x"]}, "source": ""}
    assert policy.answer(asked)["config"] == {"lr": 1.0, "x": value}


def test_a_value_that_is_not_plain_data_is_refused_by_the_name_of_its_parameter() -> None:
    policy = PopulationBasedTraining(hyperparam_mutations={"net": {"act": lambda: math.sin}})
    policy._mutations = mutations_of({"net": {"act": lambda: math.sin}})
    asked = {"config": {}, "asked": {"functions": ["net/act"]}, "source": ""}
    with pytest.raises(InvalidConfig, match="net/act became <built-in function sin>"):
        policy.answer(asked)


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
