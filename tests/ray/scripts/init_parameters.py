"""`ray.init()` as scripts of clusters call it, and what script and trials ask afterwards."""

import json
import logging
import os
import tempfile

import ray
from ray import tune


def trainable(config):
    context = ray.get_runtime_context()
    assert context.get_assigned_resources()["CPU"] == 1
    assert ray.cluster_resources()["CPU"] == 2
    assert ray.get_gpu_ids() == []
    assert context.get_node_id() in [node["NodeID"] for node in ray.nodes()]
    assert os.environ["DATA"] == "here"
    start = 0
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            with open(os.path.join(folder, "step.json")) as file:
                start = json.load(file) + 1
    for step in range(start, 4):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "step.json"), "w") as file:
                json.dump(step, file)
            checkpoint = tune.Checkpoint.from_directory(folder)
            tune.report({"score": config["x"] * step}, checkpoint=checkpoint)


def main():
    try:
        ray.init(address="auto", num_cpus=None)
    except ConnectionError:
        context = ray.init(
            num_cpus=2,
            object_store_memory=10**9,
            include_dashboard=False,
            dashboard_host="0.0.0.0",
            log_to_driver=False,
            logging_level=logging.ERROR,
            namespace="tuning",
            runtime_env={"env_vars": {"DATA": "here"}},
            _temp_dir="/tmp/somewhere",
        )
    assert ray.is_initialized()
    assert context.address_info["node_id"] == ray.get_runtime_context().get_node_id()
    ray.init(ignore_reinit_error=True)
    try:
        ray.init()
    except RuntimeError as error:
        print("refused:", error)
    assert ray.cluster_resources()["CPU"] == ray.available_resources()["CPU"] == 2
    assert [node["Alive"] for node in ray.nodes()] == [True]

    path = os.path.expanduser("~/ray_results/init")
    if tune.Tuner.can_restore(path):
        tuner = tune.Tuner.restore(path, trainable)
    else:
        tuner = tune.Tuner(
            trainable,
            param_space={"x": tune.grid_search([1, 2])},
            run_config=tune.RunConfig(name="init"),
        )
    best = tuner.fit().get_best_result(metric="score", mode="max")
    context.disconnect()
    assert not ray.is_initialized()
    print("DONE", best.metrics["score"])


if __name__ == "__main__":
    main()
