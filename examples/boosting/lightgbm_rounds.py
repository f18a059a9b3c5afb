"""Two workers boost one LightGBM model; each round is reported, every second one is saved.

    python examples/boosting/lightgbm_rounds.py --storage /tmp/results --name rounds

Kill this script at any moment and start it again with the same --name: it resumes from the
newest saved model, with the same numbers.
"""

from __future__ import annotations

from typing import Any

import lightgbm
import rounds

from holdfast import train
from holdfast.train.lightgbm import (
    LightGBMTrainer,
    RayTrainReportCallback,
    get_network_params,
)


def train_func(config: dict[str, Any]) -> None:
    context = train.get_context()
    rank, ranks = context.get_world_rank(), context.get_world_size()
    points, label = rounds.samples()
    params = {
        "objective": "binary",
        "max_depth": config["max_depth"],
        # Each worker has its own rows, and all of them build one tree.
        "tree_learner": "data_parallel",
        "pre_partition": True,
        **get_network_params(),
    }
    data = lightgbm.Dataset(points[rank::ranks], label[rank::ranks], params=params)

    model, done = None, 0
    if checkpoint := train.get_checkpoint():
        model = RayTrainReportCallback.get_model(checkpoint)
        done = model.current_iteration()
    lightgbm.train(
        params,
        data,
        num_boost_round=config["rounds"] - done,
        valid_sets=[data],
        valid_names=["train"],
        init_model=model,
        callbacks=[RayTrainReportCallback(metrics={"loss": "train-binary_logloss"}, frequency=2)],
    )


def main() -> None:
    rounds.main(__doc__, LightGBMTrainer, train_func)


if __name__ == "__main__":
    main()
