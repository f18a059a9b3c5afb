"""What the settings of a cluster become for its engine."""

from __future__ import annotations

import pytest

from holdfast import cluster
from holdfast.experiment.nodes.cluster_config import Cluster
from holdfast.experiment.nodes.engines import PlannedEngine, engine_of
from holdfast.runtime.engines.engine import NodeKind
from holdfast.trial.errors import InvalidConfig


def made(of: Cluster) -> PlannedEngine:
    return engine_of(of, machine={"CPU": 2.0}, gpu_names=[], environ={})


@pytest.mark.parametrize("of", [cluster.Dask("tls://head:8786"), cluster.Ray("ray://head:10001")])
def test_without_settings_nodes_are_not_limited_and_find_out_what_they_have(of: Cluster) -> None:
    planned = made(of)
    (kind,) = planned.offer.kinds
    assert kind == NodeKind(name=type(of).__name__.lower())
    assert planned.most_of(kind) is None


@pytest.mark.parametrize(
    "of",
    [
        cluster.Dask("tls://head", nodes=4, cpus_per_node=8, resources_per_node={"disk": 1}),
        cluster.Ray(nodes=(2, 4), cpus_per_node=8, resources_per_node={"disk": 1}),
    ],
)
def test_settings_limit_nodes_and_replace_what_they_find(of: Cluster) -> None:
    planned = made(of)
    (kind,) = planned.offer.kinds
    assert planned.most_of(kind) == 4
    assert kind.resources == {"CPU": 8, "disk": 1}


def test_what_is_no_dask_cluster_is_an_invalid_config() -> None:
    with pytest.raises(InvalidConfig, match=r"Dask\(...\): not the address"):
        made(cluster.Dask(3))
