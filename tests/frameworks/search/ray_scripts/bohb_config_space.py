"""BOHB with a ConfigurationSpace, as its paper's library writes spaces."""

import os

import ConfigSpace as CS
import ray
from ray import train, tune
from ray.tune.schedulers.hb_bohb import HyperBandForBOHB
from ray.tune.search.bohb import TuneBOHB

STORAGE = os.path.abspath("results")


def objective(config):
    start = 1
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            with open(os.path.join(folder, "step.txt")) as file:
                start = int(file.read()) + 1
    for step in range(start, 5):
        os.makedirs("state", exist_ok=True)
        with open("state/step.txt", "w") as file:
            file.write(str(step))
        loss = config["width"] / step + (0 if config["activation"] == "relu" else 1)
        tune.report({"loss": loss}, checkpoint=tune.Checkpoint.from_directory("state"))


if __name__ == "__main__":
    ray.init(num_cpus=2)
    space = CS.ConfigurationSpace(
        {"width": (0.0, 20.0), "height": (-100, 100), "activation": ["relu", "tanh"]}
    )
    path = os.path.join(STORAGE, "bohb")
    if tune.Tuner.can_restore(path):
        tuner = tune.Tuner.restore(path, objective)
    else:
        tuner = tune.Tuner(
            objective,
            tune_config=tune.TuneConfig(
                metric="loss",
                mode="min",
                search_alg=TuneBOHB(space, max_concurrent=4, seed=1),
                scheduler=HyperBandForBOHB(max_t=4, reduction_factor=2),
                num_samples=6,
            ),
            run_config=train.RunConfig(name="bohb", storage_path=STORAGE, verbose=0),
        )
    results = tuner.fit()
    assert results.num_errors == 0
    assert all(set(result.config) == {"width", "height", "activation"} for result in results)
    print("DONE", results.get_best_result().config)
