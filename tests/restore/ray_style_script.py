"""A script with a scheduler that has the methods that Ray calls, and remembers every result.

The scheduler notes what it remembers when a trial ends. Trials run one after the other, each in
three epochs; each epoch is marked, and waits at a gate.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from holdfast import tune
from holdfast.tune.schedulers import FIFOScheduler
from tests.rig.epochs import resumed, saved
from tests.rig.script import mark, note, wait_at

OPTIONS: dict[str, Any] = json.loads(sys.argv[1])


class BelowTheMean(FIFOScheduler):
    """Stops a trial that is worse than the mean of all results, and pauses each after its first
    result."""

    def __init__(self) -> None:
        super().__init__()
        self.losses: list[float] = []
        self.calls: list[str] = []

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        self.calls.append(f"add {trial.experiment_tag}")

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        self.losses.append(result["loss"])
        states = [one.status for one in tune_controller.get_trials()]
        said = self._said(result)
        self.calls.append(f"{trial.experiment_tag} {result['epoch']} {states}: {said}")
        return said

    def _said(self, result: dict[str, Any]) -> str:
        if result["epoch"] == 1:
            return self.PAUSE
        mean = sum(self.losses) / len(self.losses)
        return self.STOP if result["loss"] > mean else self.CONTINUE

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        self.calls.append(f"complete {trial.experiment_tag}")
        note(calls=self.calls, losses=self.losses)


def train(config: dict[str, Any]) -> None:
    for epoch in range(resumed() + 1, 4):
        mark("at", config["x"], epoch)
        wait_at(f"at-{config['x']}-{epoch}")
        row = {"loss": config["x"] + epoch / 10, "epoch": epoch}
        tune.report(row, checkpoint=saved(epoch))


def main() -> None:
    path = str(Path(OPTIONS["storage"], "run"))
    if "restore" in OPTIONS:
        tuner = tune.Tuner.restore(path, train)
    else:
        tuner = tune.Tuner(
            train,
            param_space={"x": tune.grid_search([3, 5, 2, 4])},
            tune_config=tune.TuneConfig(
                metric="loss", mode="min", scheduler=BelowTheMean(), max_concurrent_trials=1
            ),
            run_config=tune.RunConfig(storage_path=OPTIONS["storage"], name="run"),
        )
    found = [
        {"x": one.config, "epoch": (one.metrics or {})["epoch"], "why": one.why}
        for one in tuner.fit()
    ]
    print("RESULTS", json.dumps(found))


if __name__ == "__main__":
    main()
