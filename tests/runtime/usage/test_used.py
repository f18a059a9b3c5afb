"""Samples and the kernel's counts, added up; values from other processes are checked."""

from __future__ import annotations

import math
from typing import Any

import pytest

from holdfast.runtime.errors import WireError
from holdfast.runtime.usage.used import Account, Sample, Spent, Used
from holdfast.runtime.wire import checked
from holdfast.schema import to_row

MB = 1 << 20
SPENT = Spent(wall_s=9.0, cpu_s=3.0, largest_bytes=300 * MB, shared_bytes=100 * MB)


def sample(memory: int, main: int, *, peak: int | None = None, **other: Any) -> Sample:
    values: dict[str, Any] = {"cpu_s": 1.0, **other}
    return Sample(
        memory_bytes=memory * MB,
        main_bytes=main * MB,
        main_peak_bytes=(main if peak is None else peak) * MB,
        **values,
    )


def test_a_worker_that_was_never_sampled_has_the_kernels_counts_without_what_it_shares() -> None:
    used = Account().at_exit(SPENT)
    assert used == Used(wall_s=9.0, cpu_s=3.0, memory_bytes=200 * MB)


def test_a_worker_smaller_than_what_it_shares_has_used_nothing_of_its_own() -> None:
    spent = Spent(wall_s=1.0, cpu_s=0.1, largest_bytes=50 * MB, shared_bytes=100 * MB)
    assert Account().at_exit(spent).memory_bytes == 0


def test_the_largest_sample_counts_and_a_peak_of_the_worker_itself_between_two() -> None:
    account = Account()
    account.add(sample(memory=150, main=200))
    account.add(sample(memory=80, main=120, peak=260))
    so_far = account.so_far(5.0)
    assert so_far is not None
    assert so_far.memory_bytes == (260 - 40) * MB  # 40 of its 120 MB count elsewhere


def test_the_memory_after_the_last_sample_is_known_from_the_kernel() -> None:
    account = Account()
    account.add(sample(memory=150, main=200))
    assert account.at_exit(SPENT).memory_bytes == 250 * MB


def test_cpu_time_of_children_that_nobody_waited_for_is_in_the_samples() -> None:
    account = Account()
    account.add(sample(memory=1, main=1, cpu_s=7.5))
    assert account.at_exit(SPENT).cpu_s == 7.5


def test_gpus_have_their_largest_memory_and_their_mean_utilisation() -> None:
    account = Account()
    account.add(sample(memory=1, main=1, gpu_memory_bytes=5, gpu_utilisation=0.5))
    account.add(sample(memory=1, main=1, gpu_memory_bytes=3, gpu_utilisation=1.0))
    account.add(sample(memory=1, main=1))
    used = account.at_exit(SPENT)
    assert (used.gpu_memory_bytes, used.gpu_utilisation) == (5, 0.75)


def test_nothing_is_known_of_gpus_without_samples_and_nothing_at_all_before_the_first() -> None:
    assert Account().so_far(1.0) is None
    used = Account().at_exit(SPENT)
    assert (used.gpu_memory_bytes, used.gpu_utilisation) == (None, None)


@pytest.mark.parametrize(
    "used",
    [
        Used(wall_s=1.5, cpu_s=0.5, memory_bytes=7, gpu_memory_bytes=None, gpu_utilisation=0.25),
        SPENT,
        sample(memory=1, main=2, peak=3, gpu_memory_bytes=4),
    ],
)
def test_values_survive_the_way_between_processes(used: Used | Spent | Sample) -> None:
    assert checked(type(used), to_row(used)) == used


@pytest.mark.parametrize(
    "row",
    [
        None,
        [1.0, 1.0, 1],
        [-1.0, 1.0, 1, None, None],
        [1.0, math.nan, 1, None, None],
        [1.0, math.inf, 1, None, None],
        [1.0, 1.0, 1 << 70, None, None],
        [1.0, 1.0, True, None, None],
        [1.0, 1.0, 1, None, 1.5],
        [1.0, 1.0, 1, "much", None],
    ],
    ids=repr,
)
def test_values_that_no_worker_can_have_used_are_refused(row: Any) -> None:
    with pytest.raises(WireError):
        checked(Used, row)
