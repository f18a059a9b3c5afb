"""A scheduler of one's own, which stops a trial that does not get better."""

import os

import ray
from ray import tune
from ray.tune.schedulers import FIFOScheduler, TrialScheduler

STORAGE = os.path.abspath("results")


class StopOnPlateau(FIFOScheduler):
    """Stops a trial whose metric has not become better for `patience` results."""

    def __init__(self, metric, mode="min", patience=2):
        super().__init__()
        self._metric = metric
        self._sign = 1 if mode == "min" else -1
        self._patience = patience
        self._best = {}
        self._stale = {}
        self.num_stopped = 0

    def on_trial_add(self, tune_controller, trial):
        self._best[trial.trial_id] = float("inf")
        self._stale[trial.trial_id] = 0

    def on_trial_result(self, tune_controller, trial, result):
        value = self._sign * result[self._metric]
        if value < self._best[trial.trial_id]:
            self._best[trial.trial_id] = value
            self._stale[trial.trial_id] = 0
            return TrialScheduler.CONTINUE
        self._stale[trial.trial_id] += 1
        if self._stale[trial.trial_id] < self._patience:
            return TrialScheduler.CONTINUE
        self.num_stopped += 1
        return TrialScheduler.STOP

    def on_trial_complete(self, tune_controller, trial, result):
        assert trial.config["floor"] == result["config/floor"]

    def debug_string(self):
        return f"{self.num_stopped} trials stopped on a plateau"


def objective(config):
    step = 0
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            with open(os.path.join(folder, "step.txt")) as file:
                step = int(file.read())
    while step < 8:
        step += 1
        os.makedirs("state", exist_ok=True)
        with open("state/step.txt", "w") as file:
            file.write(str(step))
        tune.report(
            {"loss": max(8 - step, config["floor"])},
            checkpoint=tune.Checkpoint.from_directory("state"),
        )


if __name__ == "__main__":
    ray.init(num_cpus=2)
    path = os.path.join(STORAGE, "plateau")
    if tune.Tuner.can_restore(path):
        tuner = tune.Tuner.restore(path, objective)
    else:
        tuner = tune.Tuner(
            objective,
            param_space={"floor": tune.grid_search([0, 3, 6])},
            tune_config=tune.TuneConfig(scheduler=StopOnPlateau("loss")),
            run_config=tune.RunConfig(name="plateau", storage_path=STORAGE),
        )
    results = tuner.fit()
    last = {result.config["floor"]: result.metrics["training_iteration"] for result in results}
    assert last == {0: 8, 3: 7, 6: 4}, last
    best = results.get_best_result(metric="loss", mode="min")
    ray.shutdown()
    print("DONE", best.config["floor"])
