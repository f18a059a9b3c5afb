"""The settings of clusters, and their URIs."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import cluster
from holdfast.experiment.nodes.cluster_config import cluster_of_uri, span_of, words_of
from holdfast.trial.errors import InvalidConfig


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("local://?agents=3", cluster.Local(agents=3)),
        ("local://?agents=1-3&idle_s=5", cluster.Local(agents=(1, 3), idle_s=5.0)),
        ("ssh://a,me@b", cluster.SSH(hosts=["a", "me@b"])),
        ("ssh://a,b?nodes=1-2", cluster.SSH(hosts=["a", "b"], nodes=(1, 2))),
        ("ssh://a?python=apptainer%20exec%20x%20python3", cluster.SSH(
            hosts=["a"], python=["apptainer", "exec", "x", "python3"]
        )),
        ("slurm://gpu?nodes=4&time=08:00:00&gpus_per_node=2", cluster.Slurm(
            nodes=4, partition="gpu", time="08:00:00", gpus_per_node=2
        )),
        ("slurm://?nodes=1-4", cluster.Slurm(nodes=(1, 4))),
        ("dask://host:8786?insecure=1", cluster.Dask("tcp://host:8786", insecure=True)),
        ("ray://", cluster.Ray()),
        ("ray://head:10001", cluster.Ray("ray://head:10001")),
        ("local://?resources_per_node.tpu=1&resources_per_node.disk=2", cluster.Local(
            resources_per_node={"tpu": 1.0, "disk": 2.0}
        )),
    ],
)  # fmt: skip
def test_a_uri_describes_a_cluster(uri: str, expected: object) -> None:
    assert cluster_of_uri(uri, {}, where="HOLDFAST_CLUSTER") == expected


@pytest.mark.parametrize(
    ("uri", "fact"),
    [
        ("node1,node2", "names no cluster"),
        ("kubernetes://x", "local://, ssh://, slurm://, dask://, ray://"),
        ("ssh://", "name the hosts"),
        ("dask://", "name the scheduler"),
        ("local://host", "takes no host"),
        ("slurm://?nods=3", "'nods' is not a setting of Slurm. Did you mean"),
        ("local://?agents=x", "agents='x' must be a whole number"),
        ("local://?agents=0", "from 1 to 10,000"),
        ("local://?agents=3-1", "the first not above the second"),
        ("local://?idle_s=-1", "a number of seconds"),
        ("local://?idle_s=inf", "a number of seconds"),
        ("local://?start_s=0", "a number of seconds from 1 on"),
        ("ssh://a,b?nodes=3", "only 2 hosts are listed"),
        ("ssh://-oProxyCommand=x", "not a host name"),
        ("slurm://?nodes=4-1", "the first not above the second"),
        ("slurm://?options=qos", "--qos=long"),
        ("slurm://?time=tomorrow", "08:00:00"),
        ("ssh://a?hosts=b", "'hosts' is not a setting"),
        ("dask://h?insecure=yes", "must be 0 or 1"),
        ("ssh://a?cpus_per_node=nan", "zero or more"),
        ("ssh://a?gpus_per_node=1.5", "whole number"),
        ("auto", "SLURM_JOB_ID is not set"),
        ("ssh://[a", "is not a URI"),
    ],
)
def test_a_uri_that_is_not_valid_is_refused_with_its_source(uri: str, fact: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        cluster_of_uri(uri, {}, where="HOLDFAST_CLUSTER")
    assert str(refused.value).startswith("HOLDFAST_CLUSTER: ")
    assert fact in str(refused.value)


def test_auto_is_the_allocation_that_the_script_runs_in() -> None:
    found = cluster_of_uri("auto", {"SLURM_JOB_ID": "7"}, where="HOLDFAST_CLUSTER")
    assert found == cluster.Slurm()


@pytest.mark.parametrize(
    ("make", "fact"),
    [
        (lambda: cluster.SSH("host"), "pass a list of host names"),
        (lambda: cluster.SSH([]), "pass a list of host names"),
        (lambda: cluster.SSH(["a", "a"]), "a host is listed twice"),
        (lambda: cluster.SSH(["a"], ssh=[]), "pass a command"),
        (lambda: cluster.SSH(["a"], python="py\nthon"), "pass a command"),
        (lambda: cluster.SSH(["a"], scratch=""), "a line of text"),
        (lambda: cluster.Local(agents=True), "a whole number"),
        (lambda: cluster.Local(gpus_per_node=0.5), "gpus_per_node=0.5"),  # type: ignore[arg-type]
        (lambda: cluster.Local(cpus_per_node=-1), "zero or more"),
        (lambda: cluster.Local(resources_per_node=["a"]), "pass a dict"),  # type: ignore[arg-type]
        (lambda: cluster.Slurm(nodes=(3, 1)), "not above the second"),
        (lambda: cluster.Slurm(partition="a b"), "is not a name"),
        (lambda: cluster.Dask("tls://x", nodes=0), "from 1 to 10,000"),
    ],
)
def test_a_setting_that_is_not_valid_is_refused(make: Any, fact: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        make()
    assert fact in str(refused.value)


def test_the_settings_of_a_node_become_resources() -> None:
    given = cluster.Local(cpus_per_node=4, gpus_per_node=1, resources_per_node={"tpu": 2})
    assert given.resources() == {"CPU": 4, "GPU": 1, "tpu": 2}
    assert cluster.Local().resources() == {}


def test_one_number_of_nodes_is_the_least_and_the_most() -> None:
    assert span_of(3) == (3, 3)
    assert span_of((1, 4)) == (1, 4)


def test_a_command_given_as_text_is_one_word() -> None:
    assert words_of("/opt/my python/bin/python", ["python3"]) == ("/opt/my python/bin/python",)
    assert words_of(None, ["python3"]) == ("python3",)
