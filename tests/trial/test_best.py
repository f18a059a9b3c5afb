"""What fresh runs say of configs, with numbers from tables of Student's t and from hand."""

from __future__ import annotations

import pytest

from holdfast.trial.best import Confirmed, confirmed, leader
from holdfast.trial.trial import Status, Stop, StopReason, Trial, TrialSpec

# The 97.5 % points of Student's t, from the usual table.
TABLE = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 9: 2.262, 29: 2.045, 120: 1.980}
NAN = float("nan")


def trial(
    index: int,
    loss: float | None,
    confirms: str = "",
    *,
    status: Status = Status.TERMINATED,
    stop: StopReason = StopReason.FINISHED,
) -> Trial:
    spec = TrialSpec(
        trial_id=f"t{index}",
        index=index,
        name=f"train_t{index}",
        dirname=f"train_t{index}",
        config={},
        is_added=bool(confirms),
        confirms=confirms,
    )
    row = None if loss is None else {"loss": loss}
    return Trial(spec=spec, status=status, row=row, stop=Stop(reason=stop))


def study(*fresh: list[float | None]) -> list[Trial]:
    """A trial for each list, which has the losses of its fresh runs; t0 is the best in the
    search."""
    trials = [trial(at, at / 10) for at in range(len(fresh))]
    for at, losses in enumerate(fresh):
        trials += [trial(len(trials) + n, one, f"t{at}") for n, one in enumerate(losses)]
    return trials


def found(trials: list[Trial]) -> list[Confirmed]:
    return confirmed(trials, "loss", "min")


@pytest.mark.parametrize("freedom", TABLE)
def test_the_interval_is_that_of_students_t(freedom: int) -> None:
    """Values at both sides of 5 with the standard error 1."""
    count = freedom + 1
    pairs, odd = divmod(count, 2)
    far = (freedom * count / (2 * pairs)) ** 0.5
    (one,) = found(study([5.0 - far, 5.0 + far] * pairs + [5.0] * odd))
    assert one.mean is not None
    assert one.low is not None
    assert one.high is not None
    assert one.mean == pytest.approx(5)
    assert one.high - one.mean == pytest.approx(TABLE[freedom], abs=6e-4)
    assert one.mean - one.low == pytest.approx(TABLE[freedom], abs=6e-4)


def test_three_runs_by_hand() -> None:
    """1, 2, 3: the mean is 2, the standard error 1 / sqrt(3), and 4.303 of them are 2.484."""
    (one,) = found(study([1.0, 2.0, 3.0]))
    assert (one.trial_id, one.value, one.runs, one.values) == ("t0", 0.0, 3, (1.0, 2.0, 3.0))
    assert one.low == pytest.approx(-0.484, abs=1e-3)
    assert one.high == pytest.approx(4.484, abs=1e-3)


def test_of_equal_means_the_lower_index_is_first_in_any_order_of_the_trials() -> None:
    """As of equal values in the search; a restore passes on the trials in another order."""
    trials = study([1.0, 1.0], [1.0, 1.0], [1.0, 1.0])
    for given in (trials, trials[::-1]):
        assert [one.trial_id for one in found(given)] == ["t0", "t1", "t2"]


@pytest.mark.parametrize(("far", "is_tied"), [(2.26, True), (2.27, False)])
def test_two_configs_are_tied_if_welchs_test_shows_no_difference(
    far: float, is_tied: bool
) -> None:
    """With three runs each and the variance 1, the test has 4 degrees of freedom: a difference of
    2.776 * sqrt(2 / 3) = 2.267 is shown."""
    best, second = found(study([1.0, 2.0, 3.0], [1.0 + far, 2.0 + far, 3.0 + far]))
    assert (best.trial_id, best.is_tied, second.is_tied) == ("t0", False, is_tied)


def test_the_freedom_of_unequal_spreads_lies_between_those_of_both() -> None:
    """The variances of the means are 1/3 and 7/3, so the freedom is (8/3)**2 / (25/9) = 2.56: t
    must be 3.5 (4.303 with 2, 3.182 with 3 degrees)."""
    wide = (-2.0, -1.0, 3.0)
    for far, is_tied in ((5.2, True), (7.1, False)):
        _, second = found(study([1.0, 2.0, 3.0], [2.0 + far + one for one in wide]))
        assert second.is_tied is is_tied


def test_a_training_that_always_gives_the_same_has_no_spread() -> None:
    first, second, third = found(study([2.0] * 3, [2.0] * 3, [2.5] * 3))
    assert (first.low, first.mean, first.high) == pytest.approx((2.0, 2.0, 2.0))
    assert (second.is_tied, third.is_tied) == (True, False)


def test_the_best_is_the_trial_whose_fresh_runs_have_the_best_mean() -> None:
    trials = study([3.0, 4.0], [1.0, 2.0], [2.0, 3.0])
    assert [one.trial_id for one in found(trials)] == ["t1", "t2", "t0"]
    best = leader(trials, "loss", "min")
    assert best is not None
    assert best.trial_id == "t1"
    worst = leader(trials, "loss", "max")
    assert worst is not None
    assert worst.trial_id == "t0"


def test_a_fresh_run_is_never_the_best_itself() -> None:
    best = leader(study([-1.0], []), "loss", "min")
    assert best is not None
    assert best.trial_id == "t0"


def test_a_better_trial_that_has_ended_since_is_the_best_until_it_is_confirmed() -> None:
    trials = [*study([3.0, 4.0], [1.0, 2.0]), trial(99, -1.0)]
    assert found(trials) == []
    best = leader(trials, "loss", "min")
    assert best is not None
    assert best.trial_id == "t99"
    trials += [trial(100, 5.0, "t99"), trial(101, 5.0, "t99")]
    assert [one.trial_id for one in found(trials)] == ["t1", "t0", "t99"]


def test_only_runs_that_trained_to_their_end_count() -> None:
    trials = [
        *study([1.0, 3.0, NAN, None]),
        trial(90, 9.0, "t0", status=Status.ERROR),
        trial(91, 9.0, "t0", status=Status.RUNNING),
        trial(92, 9.0, "t0", stop=StopReason.BUDGET),
        trial(93, 9.0, "t0", stop=StopReason.USER),
        trial(94, 2.0, "t0", stop=StopReason.STOPPER),
    ]
    (one,) = found(trials)
    assert (one.values, one.mean) == ((1.0, 3.0, 2.0), 2.0)


def test_a_config_with_a_single_run_is_not_confirmed() -> None:
    trials = study([0.0], [5.0, 6.0])
    first, second = found(trials)
    assert (first.trial_id, second.trial_id, second.mean) == ("t1", "t0", None)
    assert [one.mean for one in found(study([1.0], [2.0]))] == [None, None]


def test_no_fresh_runs_and_no_goal_confirm_nothing() -> None:
    trials = study([1.0, 2.0])
    assert confirmed(trials[:1], "loss", "min") == []
    assert confirmed(trials, None, None) == []


def test_a_fresh_run_of_a_trial_that_is_not_there_says_nothing() -> None:
    assert found(study([1.0, 2.0])[1:]) == []


def test_very_large_values_do_no_harm() -> None:
    (one,) = found(study([1e308, 1.2e308, 1.7e308]))
    assert one.runs == 3
