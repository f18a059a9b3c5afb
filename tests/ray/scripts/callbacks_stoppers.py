"""Callbacks, a logger of one's own, a stopper and a progress reporter."""

import json
import os
from collections import Counter
from typing import Dict, List

from ray import train, tune
from ray.tune import Callback, CLIReporter
from ray.tune.experiment import Trial
from ray.tune.logger import LoggerCallback
from ray.tune.stopper import CombinedStopper, MaximumIterationStopper, TrialPlateauStopper

NAME = "callbacks"


class Counting(Callback):
    def setup(self, stop=None, num_samples=None, total_num_samples=None, **info):
        self.counts = Counter()

    def on_trial_start(self, iteration: int, trials: List["Trial"], trial: "Trial", **info):
        self.counts["started"] += 1

    def on_trial_result(self, iteration, trials, trial, result, **info):
        self.counts["results"] += 1
        assert trial.trial_id == result["trial_id"]
        assert trial.config["rate"] == result["config"]["rate"]

    def on_trial_complete(self, iteration, trials, trial, **info):
        self.counts["complete"] += 1

    def get_state(self):
        return dict(self.counts)

    def set_state(self, state):
        self.counts = Counter(state)


class ToFile(LoggerCallback):
    def __init__(self, name):
        self._name = name
        self._files: Dict["Trial", object] = {}

    def log_trial_start(self, trial: "Trial"):
        path = os.path.join(trial.local_path, self._name)
        self._files[trial] = open(path, "at")

    def log_trial_result(self, iteration: int, trial: "Trial", result: Dict):
        self._files[trial].write(json.dumps({"iteration": result["training_iteration"]}) + "\n")
        self._files[trial].flush()

    def log_trial_end(self, trial: "Trial", failed: bool = False):
        self._files.pop(trial).close()


def trainable(config):
    value = 1.0
    while True:
        value *= config["rate"]
        train.report({"value": value})


if __name__ == "__main__":
    counting = Counting()
    path = os.path.expanduser(f"~/ray_results/{NAME}")
    if tune.Tuner.can_restore(path):
        tuner = tune.Tuner.restore(path, trainable=trainable, restart_errored=True)
    else:
        tuner = tune.Tuner(
            trainable,
            param_space={"rate": tune.grid_search([0.5, 0.9])},
            run_config=tune.RunConfig(
                name=NAME,
                stop=CombinedStopper(
                    MaximumIterationStopper(max_iter=12),
                    TrialPlateauStopper(metric="value", std=0.001, num_results=4, grace_period=4),
                ),
                callbacks=[counting, ToFile("rows.jsonl")],
                progress_reporter=CLIReporter(
                    metric_columns=["training_iteration", "value"], max_report_frequency=5
                ),
            ),
        )
    results = tuner.fit()
    assert [result.metrics["training_iteration"] for result in results] == [12, 12]
    for result in results:
        with open(os.path.join(result.path, "rows.jsonl")) as file:
            assert json.loads(file.readlines()[-1])["iteration"] == 12
    print("DONE", results.get_best_result("value", "min").config)
