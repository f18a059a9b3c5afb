"""A scheduler of one's own, which lets all trials take one step before any takes a second."""

import os

import ray
from ray import tune
from ray.tune.schedulers.trial_scheduler import TrialScheduler

STORAGE = os.path.abspath("results")


class Rounds(TrialScheduler):
    """Pauses each trial after its first result, and then runs the best ones first."""

    def __init__(self):
        super().__init__()
        self._loss = {}
        self._has_paused = set()
        self._order = []

    def set_search_properties(self, metric, mode, **spec):
        assert (metric, mode) == ("loss", "min")
        return super().set_search_properties(metric, mode, **spec)

    def on_trial_add(self, tune_controller, trial):
        self._loss[trial.trial_id] = float("inf")

    def on_trial_result(self, tune_controller, trial, result):
        self._loss[trial.trial_id] = result["loss"]
        if trial.trial_id in self._has_paused:
            return self.CONTINUE
        self._has_paused.add(trial.trial_id)
        return self.PAUSE

    def on_trial_complete(self, tune_controller, trial, result):
        self._order.append(trial.config["x"])
        if len(self._order) == len(tune_controller.get_trials()):
            # Trials run one after the other, so they end in the order of their first results.
            assert self._order == sorted(self._order), self._order

    def on_trial_error(self, tune_controller, trial):
        pass

    def on_trial_remove(self, tune_controller, trial):
        pass

    def choose_trial_to_run(self, tune_controller):
        waiting = [t for t in tune_controller.get_trials() if t.status == "PENDING"]
        paused = [t for t in tune_controller.get_trials() if t.status == "PAUSED"]
        paused.sort(key=lambda trial: self._loss[trial.trial_id])
        return next(iter(waiting + paused), None)

    def debug_string(self):
        return f"order of the ends: {self._order}"


class Walk(tune.Trainable):
    def setup(self, config):
        self.at = 0

    def step(self):
        self.at += 1
        return {"loss": self.config["x"] / self.at, "done": self.at == 3}

    def save_checkpoint(self, checkpoint_dir):
        with open(os.path.join(checkpoint_dir, "at.txt"), "w") as file:
            file.write(str(self.at))

    def load_checkpoint(self, checkpoint_dir):
        with open(os.path.join(checkpoint_dir, "at.txt")) as file:
            self.at = int(file.read())


if __name__ == "__main__":
    ray.init(num_cpus=1)
    path = os.path.join(STORAGE, "rounds")
    if tune.Tuner.can_restore(path):
        tuner = tune.Tuner.restore(path, Walk, resume_unfinished=True)
    else:
        tuner = tune.Tuner(
            Walk,
            param_space={"x": tune.grid_search([3, 1, 2])},
            tune_config=tune.TuneConfig(metric="loss", mode="min", scheduler=Rounds()),
            run_config=tune.RunConfig(
                name="rounds",
                storage_path=STORAGE,
                checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1),
            ),
        )
    results = tuner.fit()
    assert [result.metrics["training_iteration"] for result in results] == [3, 3, 3]
    ray.shutdown()
    print("DONE", results.get_best_result().config["x"])
