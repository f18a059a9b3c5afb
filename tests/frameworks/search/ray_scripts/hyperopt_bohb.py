"""HyperOptSearch over tune's own space, then TuneBOHB with its scheduler."""

import os

import ray
from ray import train, tune
from ray.tune.schedulers.hb_bohb import HyperBandForBOHB
from ray.tune.search import ConcurrencyLimiter
from ray.tune.search.bohb import TuneBOHB
from ray.tune.search.hyperopt import HyperOptSearch

STORAGE = os.path.abspath("results")


def objective(config):
    for step in range(1, 5):
        train.report({"mean_loss": (config["width"] - 3) ** 2 + config["height"] / step})


class Bohb(tune.Trainable):
    def setup(self, config):
        self.steps = 0

    def step(self):
        self.steps += 1
        value = (self.config["width"] - 3) ** 2 + self.config["height"] / self.steps
        return {"mean_loss": value}

    def save_checkpoint(self, checkpoint_dir):
        with open(os.path.join(checkpoint_dir, "steps"), "w") as file:
            file.write(str(self.steps))

    def load_checkpoint(self, checkpoint_dir):
        with open(os.path.join(checkpoint_dir, "steps")) as file:
            self.steps = int(file.read())


SPACE = {"width": tune.uniform(0, 20), "height": tune.uniform(0, 10)}


def tuned(name, trainable, search, **config):
    path = os.path.join(STORAGE, name)
    if tune.Tuner.can_restore(path):
        return tune.Tuner.restore(path, trainable).fit()
    tuner = tune.Tuner(
        trainable,
        param_space=SPACE,
        tune_config=tune.TuneConfig(
            metric="mean_loss", mode="min", search_alg=search, num_samples=6, **config
        ),
        run_config=train.RunConfig(name=name, storage_path=STORAGE),
    )
    return tuner.fit()


if __name__ == "__main__":
    ray.init(configure_logging=False)
    search = HyperOptSearch(
        points_to_evaluate=[{"width": 1, "height": 2}], random_state_seed=4, n_initial_points=3
    )
    results = tuned("hyperopt", objective, ConcurrencyLimiter(search, max_concurrent=2))
    assert len(results) == 6
    bohb = HyperBandForBOHB(
        time_attr="training_iteration", max_t=4, reduction_factor=2, stop_last_trials=True
    )
    search = ConcurrencyLimiter(TuneBOHB(seed=1), max_concurrent=3)
    results = tuned("bohb", Bohb, search, scheduler=bohb)
    assert not results.errors
    print("DONE", len(results))
