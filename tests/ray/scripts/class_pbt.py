"""A class trainable and population based training, as in the PBT examples."""

import os
import random

from ray import train, tune
from ray.tune.schedulers import PopulationBasedTraining


class Model(tune.Trainable):
    def setup(self, config):
        self.lr = config["lr"]
        self.value = 1.0

    def step(self):
        self.value *= 1 - self.lr * (0.5 + 0.1 * random.random())
        return {"score": 1 - self.value, "cur_lr": self.lr, "done": self.training_iteration >= 11}

    def save_checkpoint(self, checkpoint_dir):
        with open(os.path.join(checkpoint_dir, "value.txt"), "w") as file:
            file.write(str(self.value))

    def load_checkpoint(self, checkpoint_dir):
        with open(os.path.join(checkpoint_dir, "value.txt")) as file:
            self.value = float(file.read())

    def reset_config(self, new_config):
        self.lr = new_config["lr"]
        return True


def main():
    storage = os.path.expanduser("~/ray_results")
    path = os.path.join(storage, "pbt")
    if tune.Tuner.can_restore(path):
        return tune.Tuner.restore(path, Model).fit()
    pbt = PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=3,
        hyperparam_mutations={"lr": tune.uniform(0.01, 0.5)},
    )
    tuner = tune.Tuner(
        Model,
        param_space={"lr": tune.uniform(0.01, 0.5)},
        tune_config=tune.TuneConfig(
            num_samples=4, scheduler=pbt, metric="score", mode="max", reuse_actors=True
        ),
        run_config=train.RunConfig(
            name="pbt",
            verbose=1,
            stop={"training_iteration": 12},
            checkpoint_config=train.CheckpointConfig(
                checkpoint_frequency=3, checkpoint_at_end=True, num_to_keep=4
            ),
            failure_config=train.FailureConfig(max_failures=2),
        ),
    )
    return tuner.fit()


if __name__ == "__main__":
    results = main()
    best = results.get_best_result(metric="score", mode="max")
    assert best.checkpoint is not None
    assert best.metrics["training_iteration"] == 12
    assert [result.metrics["training_iteration"] for result in results] == [12] * 4
    print("DONE best lr:", best.config["lr"])
