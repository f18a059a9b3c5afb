"""Configs that are changed after they were made, as scripts with many settings do."""

import os

import ray
from ray import tune
from ray.air import CheckpointConfig, RunConfig

run_config = RunConfig()
run_config.name = "assigned"
run_config.storage_path = os.path.abspath("results")
run_config.checkpoint_config = CheckpointConfig()
run_config.checkpoint_config.num_to_keep = 2
run_config.checkpoint_config.checkpoint_score_attribute = "score"
run_config.checkpoint_config.checkpoint_score_order = "max"
run_config.failure_config.max_failures = 1
tune_config = tune.TuneConfig(metric="score", mode="max")
tune_config.num_samples = 2


def objective(config):
    first = 0
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            first = len(os.listdir(os.path.join(folder, "parts")))
    # The best epoch is neither the first nor the last one.
    for epoch in range(first, 5):
        os.makedirs("model/parts", exist_ok=True)
        for part in range(epoch + 1):
            open(f"model/parts/{part}", "w").close()
        score = config["offset"] - abs(epoch - 2)
        tune.report({"score": score}, checkpoint=tune.Checkpoint.from_directory("model"))


if __name__ == "__main__":
    ray.init(num_cpus=2)
    path = os.path.join(run_config.storage_path, run_config.name)
    if tune.Tuner.can_restore(path):
        tuner = tune.Tuner.restore(path, trainable=objective)
    else:
        tuner = tune.Tuner(
            objective,
            param_space={"offset": tune.uniform(10, 11), "net": {"width": tune.choice([8, 16])}},
            tune_config=tune_config,
            run_config=run_config,
        )
    results = tuner.fit()
    assert len(results) == 2
    for result in results:
        # From the worst to the best: Ray's order.
        kept = [metrics["score"] for _, metrics in result.best_checkpoints]
        assert kept == sorted(kept)
        assert kept[-1] == result.config["offset"]
        assert result.best_checkpoints[-1][1]["training_iteration"] == 3
        assert not result.error
    try:
        tune.Tuner.restore(os.path.abspath("nothing here"), trainable=objective)
    except FileNotFoundError as error:
        print("nothing to restore:", error)
    ray.shutdown()
    print("DONE", results.get_best_result().metrics["score"] < 11)
