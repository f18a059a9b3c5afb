"""Schedulers with real workers: the resources of a trial change while it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast import tune
from holdfast.tune.schedulers import ResourceChangingScheduler


class Counting(tune.Trainable):
    """Records its resources at each step."""

    def setup(self, config: dict[str, Any]) -> None:
        self.count = 0

    def step(self) -> dict[str, Any]:
        self.count += 1
        return {"count": self.count, "cpus": self.trial_resources.required_resources["CPU"]}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "count").write_text(str(self.count))

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        self.count = int(Path(checkpoint_dir, "count").read_text())


def at_the_second(controller: Any, trial: Any, result: Any, scheduler: Any) -> Any:
    """A function of the user's."""
    return {"CPU": 2 * trial.config["cpus"]} if result["count"] == 2 else None


def test_a_trial_resumes_where_it_was_with_what_the_users_function_gives_it(fit: Any) -> None:
    scheduler = ResourceChangingScheduler(None, at_the_second)
    result = fit(
        Counting,
        {"cpus": 1},
        tune.TuneConfig(scheduler=scheduler),
        stop={"training_iteration": 4},
    )[0]
    rows = result.metrics_dataframe
    assert list(rows["count"]) == [1, 2, 3, 4]
    assert list(rows["cpus"]) == [1, 1, 2, 2]
