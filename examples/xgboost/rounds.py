"""Two workers boost one XGBoost model; each round is reported, every second one is saved.

    python examples/xgboost/rounds.py --storage /tmp/results --name rounds

Kill this script at any moment and start it again with the same --name: it goes on with the newest
saved model, and comes to the same numbers.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import numpy as np
import xgboost

from holdfast import train
from holdfast.train.xgboost import RayTrainReportCallback, XGBoostTrainer


def samples() -> tuple[np.ndarray, np.ndarray]:
    """Points, and whether they are in a ring."""
    points = np.random.default_rng(0).uniform(-1, 1, size=(2_000, 2))
    radius = np.hypot(points[:, 0], points[:, 1])
    return points, ((radius > 0.4) & (radius < 0.8)).astype(float)


def train_func(config: dict[str, Any]) -> None:
    context = train.get_context()
    rank, ranks = context.get_world_rank(), context.get_world_size()
    points, label = samples()
    data = xgboost.DMatrix(points[rank::ranks], label[rank::ranks])

    model, done = None, 0
    if checkpoint := train.get_checkpoint():
        model = RayTrainReportCallback.get_model(checkpoint)
        done = model.num_boosted_rounds()
    xgboost.train(
        {"objective": "binary:logistic", "max_depth": config["max_depth"]},
        data,
        num_boost_round=config["rounds"] - done,
        evals=[(data, "train")],
        xgb_model=model,
        verbose_eval=False,
        callbacks=[RayTrainReportCallback(metrics={"loss": "train-logloss"}, frequency=2)],
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--storage", default=os.path.expanduser("~/ray_results"))
    parser.add_argument("--name", default="rounds", help="go on with it if it exists")
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()

    path = os.path.join(given.storage, given.name)
    if XGBoostTrainer.can_restore(path):
        print(f"Going on with {given.name} ...")
        trainer = XGBoostTrainer.restore(path, train_func)
    else:
        trainer = XGBoostTrainer(
            train_func,
            train_loop_config={"max_depth": 3, "rounds": given.rounds},
            scaling_config=train.ScalingConfig(num_workers=2),
            run_config=train.RunConfig(
                storage_path=given.storage,
                name=given.name,
                checkpoint_config=train.CheckpointConfig(num_to_keep=2),
                failure_config=train.FailureConfig(max_failures=1),
            ),
        )
    result = trainer.fit()
    assert result.metrics
    assert result.checkpoint
    model = RayTrainReportCallback.get_model(result.checkpoint)
    print(f"{model.num_boosted_rounds()} rounds, loss {result.metrics['loss']:.4f}")


if __name__ == "__main__":
    main()
