"""tune.run_experiments with dicts and Experiments, a registered trainable and a stop function."""

import os
import pathlib

from ray import tune
from ray.tune import Experiment, register_trainable, run_experiments
from ray.tune.schedulers import FIFOScheduler

STORAGE = os.path.abspath("results")


def objective(config):
    checkpoint = tune.get_checkpoint()
    done = int(pathlib.Path(checkpoint.path, "done").read_text()) if checkpoint else 0
    for step in range(done, 4):
        folder = pathlib.Path(f"made-{step}")  # in the trial's own working directory
        folder.mkdir(exist_ok=True)
        (folder / "done").write_text(str(step + 1))
        tune.report(
            {"score": config["alpha"] * (step + 1), "step": step},
            checkpoint=tune.Checkpoint.from_directory(str(folder)),
        )


def stop_fn(trial_id, result):
    return result["score"] > 5


register_trainable("objective", objective)

if __name__ == "__main__":
    small = Experiment(
        "small",
        objective,
        config={"alpha": tune.grid_search([0.5, 1.0])},
        stop={"training_iteration": 3},
        storage_path=STORAGE,
    )
    large = {
        "run": "objective",
        "config": {"alpha": tune.grid_search([2, 3])},
        "stop": stop_fn,
        "storage_path": STORAGE,
        "max_failures": 1,
        "checkpoint_config": {"num_to_keep": 1},
    }
    trials = run_experiments(
        [small, Experiment.from_json("large", large)],
        scheduler=FIFOScheduler(),
        resume=True,
        verbose=1,
    )
    scores = {(t.experiment_dir_name, t.config["alpha"]): t.last_result["score"] for t in trials}
    assert scores == {
        ("small", 0.5): 1.5,
        ("small", 1.0): 3.0,
        ("large", 2): 6,
        ("large", 3): 6,
    }, scores
    print("DONE", len(trials))
