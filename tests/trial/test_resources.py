"""A trial's request for resources, in every form that users write."""

from types import MappingProxyType
from typing import Any

import pytest

from holdfast.schema import UnreadableRecord, decode
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.resources import (
    PlacementGroupFactory,
    Usage,
    request,
    usage_of_all,
    usage_of_ranks,
    validated,
)
from holdfast.trial.trial import TrialSpec

SPEC: dict[str, Any] = {
    "trial_id": "t0", "index": 0, "name": "train_t0", "dirname": "train_t0", "config": {}
}  # fmt: skip


def test_an_amount_must_be_one_that_a_machine_can_have() -> None:
    with pytest.raises(InvalidConfig, match="it: 'GPU' must be at most 1,000,000, not 2000000"):
        validated({"GPU": 2_000_000}, where="it")
    with pytest.raises(InvalidConfig, match=r"it: 'memory' must be at most .*, not 1e\+30"):
        validated({"memory": 1e30}, where="it")


def test_bundles_are_added_up() -> None:
    factory = PlacementGroupFactory(
        [{"CPU": 1}, {"CPU": 0.1, "GPU": 0.1}, {"CPU": 0.2, "GPU": 0.2}]
    )
    assert factory.required_resources == {"CPU": 1.3, "GPU": 0.3}
    assert factory.head_cpus == 1


def test_a_request_may_be_a_mapping_or_bundles() -> None:
    factory = PlacementGroupFactory([{"GPU": 1}])
    assert request(factory) is factory
    assert request({"cpu": 2}).required_resources == {"CPU": 2}
    assert request(MappingProxyType({"CPU": 2})).required_resources == {"CPU": 2}
    assert request({}).required_resources == {"CPU": 0}


@pytest.mark.parametrize("resources", [2, "CPU", [{"CPU": 1}]])
def test_anything_else_is_refused(resources: Any) -> None:
    with pytest.raises(InvalidConfig, match="resources must be a dict or PlacementGroupFactory"):
        request(resources)


def test_attempts_that_follow_each_other_add_up_and_the_largest_memory_counts() -> None:
    first = Usage(attempt=1, wall_s=3, cpu_s=4, memory_bytes=7, gpu_utilisation=1.0)
    second = Usage(attempt=2, wall_s=1, cpu_s=1, memory_bytes=9, gpu_s=2, gpu_memory_bytes=5)
    third = Usage(attempt=3, wall_s=1, cpu_s=1, memory_bytes=1, gpu_utilisation=0.0)
    assert usage_of_all([]) is None
    assert usage_of_all([first]) is first
    assert usage_of_all([first, second, third]) == Usage(
        wall_s=5,
        cpu_s=6,
        memory_bytes=9,
        gpu_s=2,
        gpu_memory_bytes=5,
        gpu_utilisation=0.75,  # of the four seconds for which it is known
    )


def test_workers_that_run_together_need_the_memory_of_all() -> None:
    first = Usage(attempt=2, wall_s=3, cpu_s=4, memory_bytes=7, gpu_s=3, gpu_utilisation=1.0)
    second = Usage(attempt=2, wall_s=2, cpu_s=1, memory_bytes=9, gpu_s=2, gpu_memory_bytes=5)
    assert usage_of_ranks([first, second]) == Usage(
        attempt=2,
        wall_s=3,
        cpu_s=5,
        memory_bytes=16,
        gpu_s=5,
        gpu_memory_bytes=5,
        gpu_utilisation=1.0,
    )


def test_only_what_is_known_of_a_usage_is_a_column() -> None:
    usage = Usage(wall_s=3, cpu_s=4, memory_bytes=7)
    assert usage.columns() == {"wall_s": 3, "cpu_s": 4, "memory_bytes": 7}


def test_stored_resources_are_checked_also_if_they_equal_others_that_were_read() -> None:
    def read(amount: Any) -> Any:
        stored = {"bundles": [{"CPU": amount}], "strategy": "PACK"}
        return decode(TrialSpec, {**SPEC, "resources": stored}).resources

    assert read(1) == PlacementGroupFactory([{"CPU": 1}])
    with pytest.raises(UnreadableRecord, match="'CPU' must be a number, not True"):
        read(True)
