"""Two workers boost one model, and tell a test of each round; `rounds` in all.

HOLDFAST_TEST_DIES="<attempt> <round> <rank>" kills that rank as it begins that round.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import lightgbm
import numpy as np

from holdfast import train
from holdfast.testing.script import mark, note, wait_at
from holdfast.train.lightgbm import LightGBMTrainer, RayTrainReportCallback, get_network_params

OPTIONS = json.loads(sys.argv[1])
PARAMS = {
    "objective": "binary",
    "num_leaves": 4,
    "learning_rate": 0.5,
    "min_data_in_bin": 1,
    "min_data_in_leaf": 5,
    "verbosity": -1,
}


def data() -> tuple[np.ndarray, np.ndarray]:
    """Few values, so that several ranks find the same bounds between them as one does."""
    features = np.random.default_rng(0).integers(0, 8, size=(160, 3)).astype(float)
    return features, (features[:, 0] + features[:, 1] > features[:, 2] + 4).astype(float)


def watched(env: Any) -> None:
    """Called before a round, and after the report of the one before it."""
    context, number = train.get_context(), env.iteration + 1
    if context.get_world_rank() == 0:
        note(what="began", round=number, attempt=context.get_attempt())
        mark("at", number, context.get_attempt())
    wait_at(f"round-{number}")
    here = f"{context.get_attempt()} {number} {context.get_world_rank()}"
    if os.environ.get("HOLDFAST_TEST_DIES") == here:
        os.kill(os.getpid(), signal.SIGKILL)


watched.before_iteration = True  # type: ignore[attr-defined]


def loop(config: dict[str, Any]) -> None:
    context = train.get_context()
    rank, ranks = context.get_world_rank(), context.get_world_size()
    begun = train.get_checkpoint()
    model = RayTrainReportCallback.get_model(begun) if begun else None
    done = model.current_iteration() if model else 0
    network = {"tree_learner": "data_parallel", "pre_partition": True, **get_network_params()}
    features, label = data()
    params = {**PARAMS, **network}
    # All rows are evaluated in each rank: LightGBM gathers no metrics.
    whole = lightgbm.Dataset(features, label, params=params)
    part = lightgbm.Dataset(features[rank::ranks], label[rank::ranks], params=params)
    lightgbm.train(
        params,
        part,
        num_boost_round=config["rounds"] - done,
        valid_sets=[whole.set_reference(part)],
        valid_names=["all"],
        init_model=model,
        callbacks=[RayTrainReportCallback(frequency=1), watched],
    )


def main() -> None:
    path = os.path.join(OPTIONS["storage"], "run")
    if "restore" in OPTIONS:
        trainer = LightGBMTrainer.restore(path)
    else:
        trainer = LightGBMTrainer(
            loop,
            train_loop_config={"rounds": OPTIONS["epochs"]},
            scaling_config=train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.1}),
            run_config=train.RunConfig(
                name="run",
                storage_path=OPTIONS["storage"],
                failure_config=train.FailureConfig(max_failures=1),
                checkpoint_config=train.CheckpointConfig(num_to_keep=1),
                verbose=0,
            ),
        )
    result = trainer.fit()
    assert result.checkpoint
    rounds = RayTrainReportCallback.get_model(result.checkpoint).current_iteration()
    losses = [row["all-binary_logloss"] for row in result.rows()]
    print("RESULTS", json.dumps([{"rounds": rounds, "losses": losses}]))


if __name__ == "__main__":
    main()
