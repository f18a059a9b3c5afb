"""The machines that trials run on: this one, or a cluster of `init` or the environment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast import cluster
from holdfast.experiment.control.machine_resources import host_resources
from holdfast.trial.errors import InvalidConfig


@pytest.fixture(autouse=True)
def _nothing_is_given() -> Iterator[None]:
    holdfast.shutdown()
    yield
    holdfast.shutdown()


def test_init_takes_a_cluster_or_its_uri() -> None:
    holdfast.init(cluster=cluster.SSH(["a", "b"]))
    assert host_resources().cluster == cluster.SSH(["a", "b"])
    holdfast.shutdown()
    holdfast.init(cluster="local://?agents=3")
    assert host_resources().cluster == cluster.Local(agents=3)


def test_the_environment_names_the_cluster_of_a_script_that_is_not_edited() -> None:
    assert host_resources("local://?agents=3").cluster == cluster.Local(agents=3)
    assert host_resources().cluster is None
    holdfast.init(runtime_env={"env_vars": {"A": "1"}})
    found = host_resources("local://")
    assert found.cluster == cluster.Local()
    assert found.environment.env_vars == {"A": "1"}


def test_init_counts_before_the_environment() -> None:
    holdfast.init(cluster=cluster.SSH(["a"]))
    assert host_resources("local://").cluster == cluster.SSH(["a"])


def test_a_trial_in_local_mode_runs_in_the_script_whatever_the_environment_says() -> None:
    holdfast.init(local_mode=True)
    assert host_resources("local://").cluster is None


@pytest.mark.parametrize(
    ("given", "fact"),
    [
        ({"cluster": 4}, "pass an object of holdfast.cluster"),
        ({"cluster": "node1"}, "holdfast.init(cluster=...): 'node1' names no cluster"),
        ({"cluster": "local://", "num_cpus": 2}, "set cpus_per_node"),
        ({"cluster": "local://", "local_mode": True}, "leave cluster out"),
    ],
)
def test_a_cluster_that_is_not_valid_is_refused(given: dict[str, Any], fact: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        holdfast.init(**given)
    assert fact in str(refused.value)
    assert not holdfast.is_initialized()


def test_the_variable_is_named_where_its_uri_is_not_valid() -> None:
    with pytest.raises(InvalidConfig, match="HOLDFAST_CLUSTER: 'x' names no cluster"):
        host_resources("x")
