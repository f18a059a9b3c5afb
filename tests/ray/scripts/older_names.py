"""Names and keywords of Ray up to 2.6: reports of keywords, `tune.checkpoint_dir`, `local_dir`,
checkpoints of dicts."""

import functools
import os

import ray.cloudpickle as pickle
from ray import air, tune
from ray.air import Checkpoint, session
from ray.tune.registry import get_trainable_cls
from ray.tune.result import TRAINING_ITERATION

STEPS = 4


def train(config, checkpoint_dir=None, scale=1):
    assert tune.is_session_enabled()
    start = 0
    if checkpoint_dir:
        with open(os.path.join(checkpoint_dir, "step"), "rb") as file:
            start = pickle.load(file) + 1
    for step in range(start, STEPS):
        with tune.checkpoint_dir(step=step) as checkpoint_dir:
            with open(os.path.join(checkpoint_dir, "step"), "wb") as file:
                pickle.dump(step, file)
        tune.report(score=scale * step, began=start, trial=tune.get_trial_id())


def train_with_dicts(config):
    checkpoint = session.get_checkpoint()
    start = checkpoint.to_dict()["step"] + 1 if checkpoint else 0
    for step in range(start, STEPS):
        state = {"step": step, "weights": [step * config["x"]] * 3}
        session.report({"score": step * config["x"]}, checkpoint=Checkpoint.from_dict(state))


if __name__ == "__main__":
    assert not tune.is_session_enabled()
    folder = os.path.expanduser("~/older_results")
    analysis = tune.run(
        functools.partial(train, scale=2),
        name="functions",
        local_dir=folder,
        resources_per_trial={"cpu": 1},
        keep_checkpoints_num=1,
        checkpoint_score_attr=TRAINING_ITERATION,
        sync_config=tune.SyncConfig(syncer=None),
        resume="AUTO",
        verbose=1,
    )
    (trial,) = analysis.trials
    assert trial.last_result["score"] == 2 * (STEPS - 1)
    assert trial.last_result[TRAINING_ITERATION] == STEPS
    assert trial.trial_id == trial.last_result["trial"]

    tune.register_trainable("dicts", train_with_dicts)
    assert get_trainable_cls("dicts") is train_with_dicts
    path = os.path.join(folder, "dicts")
    if tune.Tuner.can_restore(path):
        tuner = tune.Tuner.restore(path, "dicts", resume_errored=True)
    else:
        tuner = tune.Tuner(
            "dicts",
            param_space={"x": 2},
            tune_config=tune.TuneConfig(metric="score", mode="max"),
            run_config=air.RunConfig(name="dicts", local_dir=folder),
        )
    best = tuner.fit().get_best_result()
    state = best.checkpoint.to_dict()
    assert state == {"step": STEPS - 1, "weights": [2 * (STEPS - 1)] * 3}
    print("DONE", best.metrics["score"])
