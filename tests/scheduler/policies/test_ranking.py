"""The order of a population, against one that sorts all its members each time."""

import math
from collections.abc import Mapping
from typing import Any, Self

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.scheduler.events import CheckpointLost, ExperimentSpec, TrialStopOrdered
from holdfast.scheduler.policies import members
from holdfast.scheduler.policies.members import Member, Ranking
from holdfast.scheduler.policies.pbt import PopulationBasedTraining
from holdfast.scheduler.policy import Decision, Observation, View
from holdfast.trial.space import uniform
from holdfast.trial.trial import Status, Trial
from tests.scheduler.policies.population import Play

SCORES = st.sampled_from([-math.inf, -1.0, 0.0, 0.5, 2.0])


@given(st.lists(st.tuples(st.booleans(), SCORES, st.integers(0, 60)), max_size=120))
def test_its_places_are_those_of_a_sorted_list(changes: list[tuple[bool, float, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(members, "_MOST", 4)
        ranked, known = Ranking(), list[members.Standing]()
        for adds, score, number in changes:
            item = (score, number)
            if item in known:
                ranked.remove(item)
                known.remove(item)
            elif adds:
                ranked.add(item)
                known = sorted([*known, item])
            assert list(ranked) == [ranked[place] for place in range(len(ranked))] == known
            assert ranked.count_below(item) == sum(one < item for one in known)


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


def test_a_member_that_no_report_has_compared_is_neither_among_the_best_nor_the_worst() -> None:
    play: Any = Play(PopulationBasedTraining(
        time_attr="training_iteration", perturbation_interval=1,
        hyperparam_mutations={"lr": uniform(0.001, 2.0)},
    ), size=4)  # fmt: skip
    members = play.run.machine.policy._members
    play.step("t0", 1.0)
    assert (members.worst, members.best_sources) == ([], 0)
    play.step("t1", 2.0)
    assert members.worst == ["t1"]
    assert [members.best_source(number) for number in range(members.best_sources)] == ["t0"]
