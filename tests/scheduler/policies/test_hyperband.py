"""HyperBand against its definition, recomputed for each bracket from all reports."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.scheduler.effects import Launch, Reply, Verdict, Warn
from holdfast.scheduler.events import SearchEnded, SearchWaits
from holdfast.scheduler.policies.hyperband import HyperBandScheduler, shapes
from holdfast.scheduler.policy import Decision, Observation, Stalled, View
from holdfast.testing.rehearsal import Rehearsal
from holdfast.trial.config import FailureConfig
from holdfast.trial.trial import Status
from tests.rig.scheduler.playing import Play, Step

Losses = list[list[float]]


class Life:
    """The behaviour of trials: trial i reports `losses[i][t - 1]` at t, as far as the list
    reaches.

    It reports its loss only at each `every[i]`-th iteration; one in `failing` raises there.
    """

    def __init__(self, losses: Losses, every: list[int], failing: Mapping[int, int]) -> None:
        self.losses, self.every, self.failing = losses, every, failing

    def __call__(self, index: int, iteration: int) -> Step:
        if self.failing.get(index) == iteration:
            return "raises"
        if iteration > len(self.losses[index]):
            return "returns"
        if iteration % self.every[index]:
            return {"nothing": 0}
        return {"loss": self.losses[index][iteration - 1]}


def ends_at(life: Life, most: int, factor: int) -> list[int]:
    """The last iteration of each trial by the definition: bracket after bracket, rung after rung,
    from the losses of all members."""
    ends: list[int] = []
    last = 0
    while factor ** (last + 1) <= most:
        last += 1
    s = last
    while len(ends) < len(life.losses):
        places = math.ceil((last + 1) * factor**s / (s + 1))
        first = len(ends)
        ends += ends_in_bracket(
            life, range(first, min(first + places, len(life.losses))), most, factor, s
        )
        s = s - 1 if s else last
    return ends


def ends_in_bracket(life: Life, trials: range, most: int, factor: int, s: int) -> list[int]:
    def seen(trial: int, milestone: float) -> int | None:
        """The iteration at which a trial reports for the milestone, if it gets there."""
        least = math.ceil(milestone)
        at = -(-least // life.every[trial]) * life.every[trial]
        return at if at <= own_end(trial) else None

    def own_end(trial: int) -> int:
        failing = life.failing.get(trial)
        lasts = len(life.losses[trial])
        return lasts if failing is None or failing > lasts + 1 else failing - 1

    def full(trial: int) -> int:
        """The latest iteration at which it is stopped."""
        at_end = seen(trial, most)
        return own_end(trial) if at_end is None else at_end

    ends: dict[int, int] = {}
    alive = list(trials)
    for rung in range(s):
        milestone = most / factor ** (s - rung)
        ranked = []
        for trial in alive:
            at = seen(trial, milestone)
            if at is None or at >= most:
                ends[trial] = full(trial)
            else:
                loss = life.losses[trial][at - 1]
                ranked.append((loss if math.isfinite(loss) else math.inf, trial, at))
        ranked.sort()
        places = max(1, len(alive) // factor)
        good = [trial for loss, trial, _ in ranked if loss < math.inf][:places]
        alive = sorted(good or [trial for _, trial, _ in ranked[:1]])
        ends |= {trial: at for _, trial, at in ranked if trial not in alive}
    ends |= {trial: full(trial) for trial in alive}
    return [ends[trial] for trial in trials]


@st.composite
def lives(draw: st.DrawFn) -> tuple[Life, int, int]:
    factor = draw(st.integers(2, 4))
    most = draw(st.integers(1, 20))
    count = draw(st.integers(1, 16))
    loss = st.one_of(st.integers(0, 4).map(float), st.sampled_from([math.nan, math.inf]))
    length = st.one_of(st.just(most + 3), st.integers(1, most + 3))
    losses = [
        draw(st.lists(loss, min_size=size, max_size=size))
        for size in draw(st.lists(length, min_size=count, max_size=count))
    ]
    every = draw(st.lists(st.sampled_from([1, 1, 1, 2, 5]), min_size=count, max_size=count))
    failing = draw(st.dictionaries(st.integers(0, count - 1), st.integers(1, most), max_size=4))
    return Life(losses, every, failing), most, factor


def play(
    life: Callable[[int, int], Step],
    scheduler: HyperBandScheduler,
    trials: int,
    *,
    cpus: int = 2,
    spec: Mapping[str, Any] | None = None,
    **options: Any,
) -> Play:
    capacity = {"CPU": float(cpus)}
    given = {"metric": "loss", "mode": "min", **(spec or {}), **options}
    return Play(scheduler, life, trials=trials, capacity=capacity, **given).to_the_end()


class Waking(HyperBandScheduler):
    """Nothing has to wake it if all are paused."""

    def on_other(self, view: View, event: Observation) -> Sequence[Decision]:
        assert not isinstance(event, Stalled)
        return super().on_other(view, event)


@settings(max_examples=40, deadline=None)
@given(
    lives(),
    st.integers(1, 9),
    st.integers(0, 999),
    st.booleans(),
    st.integers(1, 3),
    st.sets(st.integers(2, 80), max_size=3),
)
def test_every_stop_and_promotion_is_the_one_of_the_definition_in_whatever_order_things_happen(
    case: tuple[Life, int, int],
    cpus: int,
    seed: int,
    is_class: bool,
    saves_every: int,
    crashes: set[int],
) -> None:
    life, most, factor = case
    played = play(
        life,
        Waking(max_t=most, reduction_factor=factor),
        len(life.losses),
        cpus=cpus,
        spec={"saves_when_told": is_class, "strict_metric": False},
        seed=seed,
        saves_every=saves_every,
        crashes=crashes,
    )
    assert played.finished is not None
    assert played.finished.reason == "done"
    assert [trial.iteration for trial in played.trials] == ends_at(life, most, factor)


def steady(index: int, iteration: int) -> Step:
    """Earlier trials are better, and every one trains for ever."""
    return {"loss": float(index)}


@settings(max_examples=10, deadline=None)
@given(
    st.integers(1, 12),
    st.integers(1, 4),
    st.integers(0, 99),
    st.sets(st.integers(2, 60), max_size=4),
)
def test_a_search_that_waits_for_trials_to_end_hangs_no_run(
    most_alive: int, cpus: int, seed: int, crashes: set[int]
) -> None:
    played = play(
        steady,
        HyperBandScheduler(max_t=9),
        20,
        cpus=cpus,
        seed=seed,
        most_alive=most_alive,
        crashes=crashes,
    )
    assert all(trial.iteration in (1, 3, 9) for trial in played.trials)
    assert played.trials[0].iteration == 9


def test_a_bracket_that_the_search_lets_wait_is_halved_with_those_that_it_has() -> None:
    played = play(steady, HyperBandScheduler(max_t=9), 10, most_alive=6)
    # 6 of the 9 places of the first bracket; then 4 of the 5 of the second.
    assert [trial.iteration for trial in played.trials] == [9, 3, 1, 1, 1, 1, 9, 3, 3, 3]


def test_no_bracket_is_halved_before_a_search_that_waits_has_heard_of_the_newest_pause() -> None:
    run = halving(2, search_ends=False)
    assert verdict(run, "t0", 1.0) is Verdict.PAUSE
    run.ends("t0")
    run.handle(SearchWaits())
    assert verdict(run, "t1", 2.0) is Verdict.PAUSE
    assert run.ends("t1") == []
    effects = run.handle(SearchWaits())
    assert [effect.trial_id for effect in effects if isinstance(effect, Launch)] == ["t0"]
    assert run.trial("t1").status is Status.TERMINATED


def test_the_brackets_are_those_of_the_papers_table() -> None:
    found = shapes(81, 3)
    assert [shape.places for shape in found] == [81, 34, 15, 8, 5]
    assert list(found[0].milestones) == [1, 3, 9, 27]
    assert [len(shape.milestones) for shape in found] == [4, 3, 2, 1, 0]
    assert [shape.places for shape in shapes(1000, 10)] == [1000, 134, 20, 4]
    assert [shape.places for shape in shapes(2, 3)] == [1]


def test_a_trial_that_is_beyond_the_next_milestone_already_waits_there() -> None:
    def life(index: int, iteration: int) -> Step:
        if index == 2 and iteration % 5:
            return {"nothing": 0}
        return {"loss": float(index)}

    spec = {"strict_metric": False}
    played = play(life, HyperBandScheduler(max_t=9), 9, spec=spec)
    assert [trial.iteration for trial in played.trials] == [9, 3, 5, 1, 1, 1, 1, 1, 1]


def test_trials_run_beyond_max_t_where_the_last_ones_are_left_alone() -> None:
    def life(index: int, iteration: int) -> Step:
        return "returns" if iteration > 12 else {"loss": float(index)}

    played = play(life, HyperBandScheduler(max_t=9, stop_last_trials=False), 9)
    assert [trial.iteration for trial in played.trials] == [12, 3, 3, 1, 1, 1, 1, 1, 1]


def test_a_trial_that_could_not_save_itself_at_its_milestone_comes_there_again() -> None:
    run = halving(3, saves_when_told=True, failure=FailureConfig(max_failures=1))
    assert verdict(run, "t0", 5.0) is Verdict.PAUSE
    run.fails("t0")
    run.exits("t0")
    run.start("t0")
    assert run.trial("t0").iteration == 0
    assert verdict(run, "t0", 0.0) is Verdict.PAUSE  # and its first value counts
    assert verdict(run, "t1", 4.0) is Verdict.PAUSE
    assert verdict(run, "t2", 6.0) is Verdict.STOP
    assert run.trial("t0").status is Status.TERMINATED


def test_a_failed_trial_that_a_restore_resumes_counts_while_its_bracket_is_not_halved() -> None:
    run = halving(3)
    assert verdict(run, "t0", 2.0) is Verdict.PAUSE
    run.fails("t1")
    run.crash()
    run.resume(errored="resume")
    run.start("t1", "t2")
    assert verdict(run, "t1", 1.0) is Verdict.PAUSE
    assert verdict(run, "t2", 3.0) is Verdict.STOP
    run.ends("t1")
    assert run.trial("t0").status is Status.TERMINATED
    assert run.trial("t1").status is Status.STARTING


def test_a_failed_trial_that_a_restore_resumes_later_runs_to_max_t() -> None:
    run = halving(3)
    run.fails("t1")
    run.exits("t1")
    assert verdict(run, "t0", 1.0) is Verdict.PAUSE
    assert verdict(run, "t2", 2.0) is Verdict.STOP
    run.crash()
    run.resume(errored="resume")
    run.start("t0", "t1")
    assert [verdict(run, "t1", 9.0) for _ in range(3)] == [
        Verdict.CONTINUE,
        Verdict.CONTINUE,
        Verdict.STOP,
    ]


def test_a_bracket_waits_for_none_that_a_restore_has_left_behind() -> None:
    run = halving(2, search_ends=False)
    run.crash()
    run.resume(unfinished="skip")
    run.suggest()
    run.handle(SearchEnded())
    run.start("t2")
    assert verdict(run, "t2", 1.0) is Verdict.PAUSE
    effects = run.ends("t2")
    assert [effect.trial_id for effect in effects if isinstance(effect, Launch)] == ["t2"]


def test_trials_that_a_restore_adds_begin_where_a_bracket_still_has_room() -> None:
    run = halving(3, max_t=9)  # a first bracket of 9
    assert verdict(run, "t0", 1.0) is Verdict.PAUSE
    run.crash()
    run.resume()
    run.machine.search_ended = False
    run.suggest()
    run.start("t1", "t2")
    assert verdict(run, "t1", 2.0) is Verdict.PAUSE
    assert verdict(run, "t2", 3.0) is Verdict.PAUSE


def test_a_trial_that_saves_nothing_starts_from_scratch_and_is_halved_as_if_it_had_saved() -> None:
    run = halving(3)
    effects = run.report("t0", {"loss": 1.0})
    (text,) = [effect.text for effect in effects if isinstance(effect, Warn)]
    assert "HyperBandScheduler resumes trials from checkpoints, but train_t0 has reported" in text
    run.ends("t0")
    for trial_id, loss in (("t1", 2.0), ("t2", 3.0)):
        assert not any(isinstance(one, Warn) for one in run.report(trial_id, {"loss": loss}))
        run.ends(trial_id)
    assert [run.trial(f"t{i}").status for i in (1, 2)] == [Status.TERMINATED] * 2
    run.start("t0")
    assert run.trial("t0").iteration == 0
    # What it has reported before changes nothing, also if it is worse now.
    for loss, told in ((9.0, Verdict.CONTINUE), (0.9, Verdict.CONTINUE), (0.8, Verdict.STOP)):
        assert run.report("t0", {"loss": loss})[-1] == Reply(
            trial_id="t0", attempt=2, verdict=told
        )


def halving(count: int, max_t: int = 3, *, search_ends: bool = True, **spec: Any) -> Rehearsal:
    """A bracket with this many trials, all of which run."""
    known = {"metric": "loss", "mode": "min", "scheduler": "HyperBandScheduler"}
    run = Rehearsal(
        capacity={"CPU": float(count)}, policy=HyperBandScheduler(max_t=max_t), **(known | spec)
    )
    for index in range(count):
        run.suggest()
        run.start(f"t{index}")
    if search_ends:
        run.handle(SearchEnded())
    return run


def verdict(run: Rehearsal, trial_id: str, loss: float) -> Verdict:
    saves = not run.machine.spec.saves_when_told
    effects = run.report(trial_id, {"loss": loss}, checkpoint=saves)
    (reply,) = [effect for effect in effects if isinstance(effect, Reply)]
    return reply.verdict
