"""tune.run with ASHA, and everything that people do with the ExperimentAnalysis it returns."""

import json
import os
import tempfile

import ray
from ray import tune
from ray.tune import Callback, Experiment, ExperimentAnalysis
from ray.tune.experiment import Trial
from ray.tune.schedulers import ASHAScheduler

STORAGE = os.path.abspath("results")


class Best(Callback):
    """Prints the best loss so far."""

    def setup(self, stop=None, num_samples=None, total_num_samples=None, **info):
        self.best = float("inf")
        self.total = total_num_samples

    def on_trial_result(self, iteration, trials, trial: Trial, result, **info):
        assert len(trials) <= self.total
        self.best = min(self.best, result["mean_loss"])

    def on_experiment_end(self, trials, **info):
        print(f"best loss of {len(trials)} trials: {self.best:.3f}")


def train_mnist(config):
    step = 0
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder, open(os.path.join(folder, "step.json")) as file:
            step = json.load(file)["step"]
    while step < 6:
        step += 1
        loss = config["lr"] / step + config["l2"]["weight"] * 0.01
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "step.json"), "w") as file:
                json.dump({"step": step}, file)
            tune.report({"mean_loss": loss}, checkpoint=tune.Checkpoint.from_directory(folder))


def main():
    analysis = tune.run(
        train_mnist,
        name="asha_analysis",
        metric="mean_loss",
        mode="min",
        config={
            "lr": tune.grid_search([0.01, 0.1, 1.0]),
            "l2": {"weight": tune.uniform(0, 1)},
            "seed": 1,
        },
        num_samples=2,
        scheduler=ASHAScheduler(max_t=6, grace_period=2, reduction_factor=2),
        resources_per_trial={"cpu": 1, "gpu": 0},
        storage_path=STORAGE,
        keep_checkpoints_num=1,
        verbose=1,
        callbacks=[Best()],
        resume="AUTO",
    )
    assert isinstance(analysis, ExperimentAnalysis)
    best = analysis.get_best_trial("mean_loss", "min", "last")
    assert (
        best.config
        == analysis.best_config
        == analysis.get_best_config(metric="mean_loss", mode="min")
    )
    assert best.status == Trial.TERMINATED
    assert best.last_result["mean_loss"] == analysis.best_result["mean_loss"]
    assert best.metric_analysis["mean_loss"]["min"] <= best.metric_analysis["mean_loss"]["avg"]
    for scope in ("all", "avg", "last-5-avg", "last-10-avg"):
        assert analysis.get_best_trial("mean_loss", "min", scope) in analysis.trials
    assert len(analysis.trials) == len(analysis.results_df) == len(analysis.dataframe()) == 6
    assert "config/l2/weight" in analysis.dataframe(metric="mean_loss", mode="min").columns
    assert list(analysis.trial_dataframes) == [trial.trial_id for trial in analysis.trials]
    checkpoint = analysis.get_best_checkpoint(best, metric="mean_loss", mode="min")
    with checkpoint.as_directory() as folder:
        assert os.listdir(folder) != []
    assert analysis.best_checkpoint == checkpoint
    again = ExperimentAnalysis(os.path.join(STORAGE, "asha_analysis"))
    assert again.get_best_config("mean_loss", "min") == best.config
    return best


if __name__ == "__main__":
    ray.init(num_cpus=2)
    assert Experiment
    best = main()
    ray.shutdown()
    print("DONE best lr:", best.config["lr"])
