"""Two workers boost one model, and tell a test of each round; `rounds` in all.

HOLDFAST_TEST_DIES="<attempt> <round> <rank>" kills that rank as it begins that round.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import numpy as np
import xgboost

from holdfast import train
from holdfast.testing.script import mark, note, wait_at
from holdfast.train.xgboost import RayTrainReportCallback, XGBoostTrainer

OPTIONS = json.loads(sys.argv[1])
PARAMS = {"objective": "binary:logistic", "max_depth": 2, "eta": 0.5}


def data() -> tuple[np.ndarray, np.ndarray]:
    """Few values, so that several ranks find the same bounds between them as one does."""
    features = np.random.default_rng(0).integers(0, 8, size=(160, 3)).astype(float)
    return features, (features[:, 0] + features[:, 1] > features[:, 2] + 4).astype(float)


class Watched(xgboost.callback.TrainingCallback):
    def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        context, number = train.get_context(), model.num_boosted_rounds() + 1
        if context.get_world_rank() == 0:
            note(what="began", round=number, attempt=context.get_attempt())
            mark("at", number, context.get_attempt())
        wait_at(f"round-{number}")
        here = f"{context.get_attempt()} {number} {context.get_world_rank()}"
        if os.environ.get("HOLDFAST_TEST_DIES") == here:
            os.kill(os.getpid(), signal.SIGKILL)
        return False


def loop(config: dict[str, Any]) -> None:
    context = train.get_context()
    rank, ranks = context.get_world_rank(), context.get_world_size()
    begun = train.get_checkpoint()
    model = RayTrainReportCallback.get_model(begun) if begun else None
    done = model.num_boosted_rounds() if model else 0
    features, label = data()
    matrix = xgboost.DMatrix(features[rank::ranks], label[rank::ranks])
    xgboost.train(
        PARAMS,
        matrix,
        num_boost_round=config["rounds"] - done,
        evals=[(matrix, "train")],
        xgb_model=model,
        verbose_eval=False,
        callbacks=[RayTrainReportCallback(frequency=1), Watched()],
    )


def main() -> None:
    path = os.path.join(OPTIONS["storage"], "run")
    if "restore" in OPTIONS:
        trainer = XGBoostTrainer.restore(path)
    else:
        trainer = XGBoostTrainer(
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
    rounds = RayTrainReportCallback.get_model(result.checkpoint).num_boosted_rounds()
    losses = [row["train-logloss"] for row in result.rows()]
    print("RESULTS", json.dumps([{"rounds": rounds, "losses": losses}]))


if __name__ == "__main__":
    main()
