"""Replay a run: its cost under ASHA with twice the workers.

    python examples/search/replay.py --storage /tmp/results --name replayed

The same on the command line, for an existing run:

    holdfast replay /tmp/results/replayed --scheduler asha --option max_t=9 --workers 4
"""

from __future__ import annotations

import argparse
import os

from shared import curve

from holdfast import tune
from holdfast.simulate import replay
from holdfast.tune.schedulers import ASHAScheduler

EPOCHS = 9


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--storage", default=os.path.expanduser("~/ray_results"))
    parser.add_argument("--name", default="replayed")
    parser.add_argument("--samples", type=int, default=12)
    given = parser.parse_args(arguments)
    tune.Tuner(
        curve.train_fn,
        param_space={**curve.SPACE, "epochs": EPOCHS},
        tune_config=tune.TuneConfig(
            metric="loss", mode="min", num_samples=given.samples, max_concurrent_trials=2
        ),
        run_config=tune.RunConfig(storage_path=given.storage, name=given.name, verbose=0),
    ).fit(resume="auto")
    scheduler = ASHAScheduler(max_t=EPOCHS, reduction_factor=3)
    print(replay(os.path.join(given.storage, given.name), scheduler=scheduler, workers=4))


if __name__ == "__main__":
    main()
