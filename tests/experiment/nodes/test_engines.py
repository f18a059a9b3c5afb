"""What the settings of a cluster become for its engine."""

from __future__ import annotations

import pytest

from holdfast import cluster
from holdfast.experiment.nodes.cluster_config import Cluster
from holdfast.experiment.nodes.engines import engine_of
from holdfast.runtime.engines.engine import Engine, NodeKind
from holdfast.trial.errors import InvalidConfig


def made(of: Cluster) -> Engine:
    return engine_of(of, machine={"CPU": 2.0}, gpu_names=[])


@pytest.mark.parametrize("of", [cluster.Dask("tls://head:8786"), cluster.Ray("ray://head:10001")])
def test_without_settings_nodes_are_not_limited_and_find_out_what_they_have(of: Cluster) -> None:
    (kind,) = made(of).offer().kinds
    assert kind == NodeKind(name=type(of).__name__.lower())


@pytest.mark.parametrize(
    "of",
    [
        cluster.Dask("tls://head", nodes=4, cpus_per_node=8, resources_per_node={"disk": 1}),
        cluster.Ray(nodes=(2, 4), cpus_per_node=8, resources_per_node={"disk": 1}),
    ],
)
def test_settings_limit_nodes_and_replace_what_they_find(of: Cluster) -> None:
    (kind,) = made(of).offer().kinds
    assert kind.most == 4
    assert kind.resources == {"CPU": 8, "disk": 1}


def test_what_is_no_dask_cluster_is_an_invalid_config() -> None:
    with pytest.raises(InvalidConfig, match=r"Dask\(scheduler=...\): not the address"):
        made(cluster.Dask(3))
