"""The events that say what an attempt has used: how often, and of which part of a process."""

from __future__ import annotations

from typing import Any

from holdfast.experiment.workers.actor import AttemptUsage, amount_of
from holdfast.runtime.usage.used import Used
from holdfast.trial.events import Measured
from tests.experiment.workers.test_actor import assignment

BUNDLES = [{"CPU": 1, "memory": 5.0}, {"GPU": 2, "memory": 7.0}]


def used(wall_s: float, **other: Any) -> Used:
    return Used(wall_s=wall_s, **{"cpu_s": wall_s / 2, "memory_bytes": 10, **other})


def test_the_journal_gets_the_first_samples_soon_and_then_one_a_minute() -> None:
    usage = AttemptUsage(is_rank=False)
    usage.begin(is_reused=False)
    posted = [
        at for at in range(5, 305, 5) if usage.so_far(assignment(), used(float(at))) is not None
    ]
    assert posted == [5, 10, 20, 40, 80, 140, 200, 260]


def test_the_gpus_that_an_attempt_holds_count_for_as_long_as_it_has_them() -> None:
    usage = AttemptUsage(is_rank=False)
    measured = usage.at_end(assignment(bundles=BUNDLES), used(9.0, gpu_utilisation=0.5))
    assert isinstance(measured, Measured)
    assert (measured.usage.gpu_s, measured.usage.gpu_utilisation) == (18.0, 0.5)


def test_an_attempt_in_a_reused_process_has_used_the_part_since_it_began() -> None:
    usage = AttemptUsage(is_rank=False)
    usage.begin(is_reused=False)
    usage.so_far(assignment("first"), used(20.0))
    usage.begin(is_reused=True)
    assert usage.at_end(assignment("second")) is None  # no sample since
    usage.so_far(assignment("second"), used(26.0))
    measured = usage.at_end(assignment("second"), used(30.0))
    assert measured is not None
    assert (measured.trial_id, measured.usage.wall_s, measured.usage.cpu_s) == ("second", 10, 5)


def test_what_is_known_at_the_exit_is_not_replaced_by_an_earlier_sample() -> None:
    usage = AttemptUsage(is_rank=False)
    usage.begin(is_reused=False)
    usage.so_far(assignment(), used(5.0))
    assert usage.at_end(assignment(), used(6.0)) is not None
    assert usage.at_end(assignment()) is None


def test_a_rank_has_its_own_bundle_and_a_single_worker_all() -> None:
    assert amount_of(assignment(bundles=BUNDLES), "memory", is_rank=False) == 12
    assert amount_of(assignment(bundles=BUNDLES), "memory", is_rank=True) == 7
    assert amount_of(assignment(bundles=BUNDLES), "GPU", is_rank=True) == 2
