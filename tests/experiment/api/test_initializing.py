"""`init()` with Ray's parameters, and the questions about machines that scripts ask after it."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import cluster, train, tune
from holdfast.api import initializing
from holdfast.api.initializing import AlreadyInitialized, NoCluster
from holdfast.experiment.control.machine_resources import host_resources
from holdfast.trial.errors import InvalidConfig


@pytest.fixture(autouse=True)
def _nothing_is_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in ("HOLDFAST_CLUSTER", "SLURM_JOB_ID", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(initializing, "_RUNNING_RAY", tmp_path / "ray_current_cluster")
    holdfast.shutdown()
    yield
    holdfast.shutdown()


# -- parameters ---------------------------------------------------------------------------------


def test_one_line_names_what_init_ignores(capsys: pytest.CaptureFixture[str]) -> None:
    given: dict[str, Any] = {"namespace": "a", "dashboard_port": 9, "_temp_dir": "/tmp/x"}
    holdfast.init(num_cpus=2, include_dashboard=False, object_store_memory=None, **given)
    assert capsys.readouterr().err == (
        "holdfast: init() ignores dashboard_port, namespace, _temp_dir, which have no meaning "
        "here\n"
    )


def test_nothing_is_said_about_values_that_ray_has_as_defaults(
    capsys: pytest.CaptureFixture[str],
) -> None:
    holdfast.init(
        dashboard_host="127.0.0.1", configure_logging=True, logging_level="info", namespace=None
    )
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("local", None),
        ("10.0.0.1:6379", cluster.Ray("10.0.0.1:6379")),
        ("ray://head:10001", cluster.Ray("ray://head:10001")),
        ("ssh://a,b", cluster.SSH(["a", "b"])),
    ],
)
def test_an_address_names_a_cluster(address: str, found: Any) -> None:
    holdfast.init(address)
    assert host_resources().cluster == found


def test_local_is_this_machine_whatever_the_environment_says() -> None:
    holdfast.init(address="local")
    assert host_resources("local://?agents=3").cluster is None


def test_auto_is_the_cluster_that_is_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def auto() -> Any:
        holdfast.shutdown()
        holdfast.init(address="auto")
        return host_resources().cluster

    with pytest.raises(ConnectionError, match="there is no cluster here: HOLDFAST_CLUSTER is not"):
        auto()
    (tmp_path / "ray_current_cluster").write_text("10.0.0.1:6379")
    assert auto() == cluster.Ray("auto")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert auto() == cluster.Slurm()
    monkeypatch.setenv("HOLDFAST_CLUSTER", "local://?agents=3")
    assert auto() == cluster.Local(agents=3)
    assert issubclass(NoCluster, InvalidConfig)


@pytest.mark.parametrize(
    ("given", "fact"),
    [
        ({"address": "node1"}, 'an address is "auto", "local", "host:6379"'),
        ({"address": ""}, 'an address is "auto", "local", "host:6379"'),
        ({"address": "local", "cluster": "local://"}, "both name the cluster: pass one"),
        ({"address": "10.0.0.1:6379", "num_cpus": 2}, "set cpus_per_node"),
        ({"logging_level": "loud"}, "logging_level='loud'"),
    ],
)
def test_an_address_that_is_not_valid_is_refused(given: dict[str, Any], fact: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        holdfast.init(**given)
    assert fact in str(refused.value)
    assert not holdfast.is_initialized()


def test_a_second_call_is_an_error_as_in_ray() -> None:
    holdfast.init(num_cpus=3)
    with pytest.raises(RuntimeError, match="pass ignore_reinit_error=True") as refused:
        holdfast.init()
    assert isinstance(refused.value, AlreadyInitialized)
    assert holdfast.init(num_cpus=1, ignore_reinit_error=True).address_info["address"] == "local"
    assert host_resources().total["CPU"] == 3


def test_the_logging_level_is_that_of_holdfasts_logger() -> None:
    logger = logging.getLogger("holdfast")
    before = logger.level
    try:
        holdfast.init(logging_level="ERROR")
        assert logger.level == logging.ERROR
    finally:
        logger.setLevel(before)


# -- what it returns ----------------------------------------------------------------------------


def test_init_returns_a_context_with_the_address_that_shuts_down_at_its_end() -> None:
    with holdfast.init(num_cpus=2) as context:
        assert holdfast.is_initialized()
        info = context.address_info
        assert (info["address"], info["node_id"]) == ("local", socket.gethostname())
        assert context["node_ip_address"] == info["node_ip_address"] != ""
        assert dict(context) == info
        assert context.dashboard_url == ""
    assert not holdfast.is_initialized()
    holdfast.init().disconnect()
    assert not holdfast.is_initialized()


# -- questions ----------------------------------------------------------------------------------


def test_before_init_the_answers_are_about_this_machine() -> None:
    total = holdfast.cluster_resources()
    assert 1 <= total["CPU"] <= (os.cpu_count() or 1)
    assert holdfast.available_resources() == total
    (node,) = holdfast.nodes()
    assert (node["NodeID"], node["Alive"]) == (holdfast.get_runtime_context().get_node_id(), True)
    assert node["Resources"] == total
    assert holdfast.get_gpu_ids() == []


def test_init_says_what_there_is() -> None:
    holdfast.init(num_cpus=3, num_gpus=2, resources={"tpu": 1})
    total = holdfast.cluster_resources()
    assert {name: total[name] for name in ("CPU", "GPU", "tpu")} == {"CPU": 3, "GPU": 2, "tpu": 1}


def test_a_cluster_has_no_nodes_before_an_experiment_starts() -> None:
    holdfast.init(cluster="local://?agents=2")
    assert (holdfast.nodes(), holdfast.cluster_resources()) == ([], {})


def told(config: Any = None) -> None:
    context = holdfast.get_runtime_context()
    tune.report(
        {
            "total": holdfast.cluster_resources()["CPU"],
            "free": holdfast.available_resources()["CPU"],
            "nodes": [node["NodeID"] for node in holdfast.nodes()],
            "node": context.get_node_id(),
            "gpus": holdfast.get_gpu_ids(),
            "holds": context.get_assigned_resources(),
            "worker": context.get_worker_id(),
            "job": context.get_job_id(),
        }
    )


def run_config(tmp_path: Path) -> tune.RunConfig:
    return tune.RunConfig(name="told", storage_path=str(tmp_path), verbose=0)


def test_a_trial_gets_the_same_answers_with_what_its_run_leaves_free(tmp_path: Path) -> None:
    holdfast.init(num_cpus=5, num_gpus=2)
    held = tune.with_resources(told, {"cpu": 2, "gpu": 1})
    (result,) = tune.Tuner(held, run_config=run_config(tmp_path)).fit()
    row = result.metrics or {}
    assert (row["total"], row["free"], row["gpus"]) == (5, 3, [0])
    assert row["nodes"] == [row["node"]] == [socket.gethostname()]
    assert row["holds"] == {"CPU": 2, "GPU": 1}
    assert (row["worker"], row["job"]) == (f"{row['trial_id']}.1.0", "told")
    assert holdfast.available_resources()["CPU"] == 5


def test_each_rank_has_its_own_part_of_the_gpus(tmp_path: Path) -> None:
    holdfast.init(num_cpus=5, num_gpus=4)
    result = train.DataParallelTrainer(
        told,
        scaling_config=train.ScalingConfig(
            num_workers=2, use_gpu=True, resources_per_worker={"CPU": 1, "GPU": 2}
        ),
        run_config=run_config(tmp_path),
        keep_all_metrics=True,
    ).fit()
    ranks = (result.metrics or {})["ranks"]
    assert [ranks[rank]["gpus"] for rank in ("0", "1")] == [[0, 1], [2, 3]]
    assert [ranks[rank]["worker"].rpartition(".")[2] for rank in ("0", "1")] == ["0", "1"]
    assert ranks["1"]["holds"] == {"CPU": 1, "GPU": 2}
    assert ranks["0"]["free"] == 3


def test_a_trial_on_a_node_sees_the_nodes_of_its_run(tmp_path: Path) -> None:
    holdfast.init(cluster=cluster.Local(agents=2, cpus_per_node=2))
    (result,) = tune.Tuner(told, run_config=run_config(tmp_path)).fit()
    row = result.metrics or {}
    assert row["node"] in row["nodes"]
    assert row["total"] == 2 * len(row["nodes"])
    assert row["free"] == row["total"] - 1


def test_log_to_driver_keeps_the_output_of_workers_out_of_the_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def talk(config: Any) -> None:
        print("a word from the worker")
        tune.report({"loss": 1})

    holdfast.init(log_to_driver=False)
    config = tune.RunConfig(name="talk", storage_path=str(tmp_path), verbose=1)
    (result,) = tune.Tuner(talk, run_config=config).fit()
    out, err = capfd.readouterr()
    assert "a word from the worker" not in out + err
    assert "a word from the worker" in Path(result.path, "stdout").read_text()
