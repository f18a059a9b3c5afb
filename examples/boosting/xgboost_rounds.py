"""Two workers boost one XGBoost model; each round is reported, every second one is saved.

    python examples/boosting/xgboost_rounds.py --storage /tmp/results --name rounds

Kill this script at any moment and start it again with the same --name: it resumes from the
newest saved model, with the same numbers.
"""

from __future__ import annotations

from typing import Any

import rounds
import xgboost

from holdfast import train
from holdfast.train.xgboost import RayTrainReportCallback, XGBoostTrainer


def train_func(config: dict[str, Any]) -> None:
    context = train.get_context()
    rank, ranks = context.get_world_rank(), context.get_world_size()
    points, label = rounds.samples()
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
    rounds.main(__doc__, XGBoostTrainer, train_func)


if __name__ == "__main__":
    main()
