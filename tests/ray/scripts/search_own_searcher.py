"""A searcher of one's own with save() and restore(), under a ConcurrencyLimiter."""

import os
import pickle
import random

import ray
from ray import train, tune
from ray.tune.search import UNDEFINED_METRIC_MODE, ConcurrencyLimiter, Searcher

STORAGE = os.path.abspath("results")


class HillClimb(Searcher):
    """Draws near the best config so far."""

    def __init__(self, low, high, metric=None, mode=None, seed=0):
        super().__init__(metric=metric, mode=mode)
        self._low, self._high = low, high
        self._rng = random.Random(seed)
        self._live = {}
        self._best = None

    def set_search_properties(self, metric, mode, config, **spec):
        if metric:
            self._metric = metric
        if mode:
            self._mode = mode
        return True

    def suggest(self, trial_id):
        if not self._metric or not self._mode:
            raise RuntimeError(
                UNDEFINED_METRIC_MODE.format(
                    cls=type(self).__name__, metric=self._metric, mode=self._mode
                )
            )
        if self._best is None:
            x = self._rng.uniform(self._low, self._high)
        else:
            x = min(max(self._rng.gauss(self._best[1], 0.2), self._low), self._high)
        self._live[trial_id] = {"x": x}
        return dict(self._live[trial_id])

    def on_trial_result(self, trial_id, result):
        assert trial_id in self._live

    def on_trial_complete(self, trial_id, result=None, error=False):
        config = self._live.pop(trial_id)
        if error or not result or self.metric not in result:
            return
        score = result[self.metric] * (1 if self.mode == "min" else -1)
        if self._best is None or score < self._best[0]:
            self._best = score, config["x"]

    def save(self, checkpoint_path):
        with open(checkpoint_path, "wb") as file:
            pickle.dump((self._rng, self._best), file)

    def restore(self, checkpoint_path):
        with open(checkpoint_path, "rb") as file:
            self._rng, self._best = pickle.load(file)


def objective(config):
    for step in range(1, 4):
        tune.report({"loss": (config["x"] - 2) ** 2 + 1 / step})


def run(name, searcher, samples):
    path = os.path.join(STORAGE, name)
    if tune.Tuner.can_restore(path):
        tuner = tune.Tuner.restore(path, objective)
    else:
        tuner = tune.Tuner(
            objective,
            tune_config=tune.TuneConfig(
                metric="loss",
                mode="min",
                num_samples=samples,
                search_alg=ConcurrencyLimiter(searcher, max_concurrent=1),
            ),
            run_config=train.RunConfig(name=name, storage_path=STORAGE, verbose=0),
        )
    return tuner.fit()


if __name__ == "__main__":
    ray.init(num_cpus=2)
    results = run("first", HillClimb(-5, 5), 6)
    assert results.num_errors == 0
    losses = [result.metrics["loss"] for result in results]
    assert len(losses) == 6

    # A search of the same script that is kept by hand.
    kept = HillClimb(-5, 5, metric="loss", mode="min")
    for number, result in enumerate(results):
        kept.suggest(str(number))
        kept._live[str(number)] = {"x": result.config["x"]}
        kept.on_trial_complete(str(number), result.metrics)
    kept.save_to_dir(STORAGE, session_str="hill")
    again = HillClimb(-5, 5, metric="loss", mode="min")
    again.restore_from_dir(STORAGE)
    assert again._best == kept._best

    best = run("second", again, 2).get_best_result()
    assert abs(best.config["x"] - again._best[1]) < 2
    print("DONE", round(min(losses), 3))
    ray.shutdown()
