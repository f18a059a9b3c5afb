"""The number of workers, and the resources of each."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.trial.errors import InvalidConfig
from holdfast.trial.resources import PlacementGroupFactory
from holdfast.trial.scaling import ScalingConfig


def test_two_workers_ask_for_two_cpus_and_the_coordinator_for_none() -> None:
    factory = ScalingConfig(num_workers=2).as_placement_group_factory()
    assert [dict(bundle) for bundle in factory.bundles] == [{}, {"CPU": 1}, {"CPU": 1}]
    assert factory.required_resources == {"CPU": 2}


def test_what_is_asked_for_is_added_up() -> None:
    config = ScalingConfig(
        trainer_resources={"CPU": 0.5},
        num_workers=3,
        use_gpu=True,
        resources_per_worker={"cpu": 2, "disk": 1},
        placement_strategy="SPREAD",
    )
    assert config.total_resources == {"CPU": 6.5, "GPU": 3, "disk": 3}
    assert config.num_cpus_per_worker == 2
    assert config.num_gpus_per_worker == 1
    assert config.additional_resources_per_worker == {"disk": 1}
    assert config.as_placement_group_factory().strategy == "SPREAD"


@pytest.mark.parametrize(
    "config",
    [
        ScalingConfig(),
        ScalingConfig(num_workers=2, use_gpu=True),
        ScalingConfig(num_workers=4, trainer_resources={"CPU": 1}, resources_per_worker={"a": 1}),
    ],
)
def test_a_config_comes_back_from_its_factory(config: ScalingConfig) -> None:
    again = ScalingConfig.from_placement_group_factory(config.as_placement_group_factory())
    assert again.as_placement_group_factory() == config.as_placement_group_factory()


def test_bundles_that_differ_make_no_config() -> None:
    factory = PlacementGroupFactory([{}, {"CPU": 1}, {"CPU": 2}])
    with pytest.raises(InvalidConfig, match="not all the same"):
        ScalingConfig.from_placement_group_factory(factory)


def test_a_pair_is_the_least_and_the_most() -> None:
    config = ScalingConfig(num_workers=(2, 4))
    assert (config.least_workers, config.most_workers, config.is_elastic) == (2, 4, True)
    assert len(config.as_placement_group_factory(3).bundles) == 4
    assert not ScalingConfig(num_workers=2).is_elastic


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"num_workers": 0}, "num_workers must be at least 1"),
        ({"num_workers": -1}, "num_workers must be at least 1"),
        ({"num_workers": (0, 2)}, "num_workers must be at least 1"),
        ({"num_workers": (3, 2)}, "a pair must be"),
        ({"num_workers": 1.5}, "whole number"),
        ({"num_workers": True}, "whole number"),
        ({"num_workers": None}, "whole number"),
        ({"num_workers": (1, 2, 3)}, "whole number"),
        ({"placement_strategy": "NEAR"}, "placement_strategy='NEAR'"),
        ({"resources_per_worker": {"GPU": 1}}, "set use_gpu=True"),
        ({"use_gpu": True, "resources_per_worker": {"GPU": 0}}, "needs a GPU"),
        ({"resources_per_worker": {"CPU": -1}}, "'CPU' must be zero or more"),
    ],
)
def test_what_cannot_be_meant_is_refused(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidConfig, match=told):
        ScalingConfig(**wrong)
