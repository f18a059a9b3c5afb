"""Trainables and trainers as users give them: what a file must give back that was written before
`holdfast.experiment` had folders.

    python tests/data/moved_objects.py tests/data/moved-1

wrote tests/data/moved-1 with the last commit before that. It is never written again.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast import data, train, tune
from holdfast.train.torch import TorchConfig, TorchTrainer


def loop(config: Mapping[str, Any]) -> None:
    tune.report({"loss": 1.0})


def with_more(config: Mapping[str, Any], more: list[int]) -> None:
    tune.report({"loss": float(sum(more))})


class Steps(tune.Trainable):
    def step(self) -> dict[str, Any]:
        return {"done": True}


def bound() -> Any:
    return tune.with_resources(tune.with_parameters(with_more, more=[1, 2]), {"cpu": 1})


def tunes(storage: Path) -> Mapping[str, Any]:
    """By the name of the run."""
    trainables = {"function": loop, "bound": bound(), "class": Steps}
    return {
        name: tune.Tuner(
            trainable,
            run_config=tune.RunConfig(
                name=name,
                storage_path=str(storage),
                progress_reporter=tune.CLIReporter(metric_columns=["loss"]),
            ),
        )
        for name, trainable in trainables.items()
    }


def trainer(storage: Path) -> TorchTrainer:
    return TorchTrainer(
        loop,
        train_loop_config={"lr": 0.1},
        scaling_config=train.ScalingConfig(num_workers=2),
        torch_config=TorchConfig(backend="gloo"),
        datasets={"rows": data.from_items([{"x": 1}, {"x": 2}])},
        run_config=train.RunConfig(name="trainer", storage_path=str(storage)),
    )


def main() -> None:
    target = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        storage = Path(folder)
        for tuner in tunes(storage).values():
            tuner.fit()
        trainer(storage).fit()
        for file in storage.glob("*/t*.pkl"):
            (target / file.parent.name).mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target / file.parent.name)


if __name__ == "__main__":
    from tests.data import moved_objects  # so that pickles name the module

    moved_objects.main()
