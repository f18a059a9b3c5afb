"""How far Ray's schedulers let each trial come: `ray_decisions.py < cases.json`.

A case: {"scheduler", "settings", "task", "seed", "workers", "order"}. `order` has an entry for
each trial: the trial added at place i has configuration number order[i]. A setting "factor" stands
for a custom_explore_fn that multiplies every value of a config by it. "mended" names a change of
Ray's code that makes it follow the papers. With several brackets, the trial at place i has bracket
number brackets[i]. Prints for each case a JSON list with the epochs and the last config of number
0, 1, ...
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[2])


def main() -> None:
    for case in json.load(sys.stdin):
        print(json.dumps(ends(case)), flush=True)


def ends(case: Any) -> list[Any]:
    from benchmarks.peers.clock import play, scaled_by
    from benchmarks.peers.ray_schedulers import RayPlayer
    from benchmarks.tasks.catalogue import task as task_of
    from benchmarks.tasks.task import Field

    task = task_of(case["task"])
    settings = case["settings"]
    population = None
    if (factor := settings.pop("factor", None)) is not None:
        settings |= {"custom_explore_fn": scaled_by(factor), "log_config": False}
        population = len(case["order"])
    scheduler = _kind(case)(**settings)
    player = RayPlayer(task, case["seed"], scheduler, population=population, order=case["order"])
    play(player, task, case["seed"], Field(workers=case["workers"], trainings=1e6))
    return player.ends()


def _kind(case: Any) -> Any:
    from ray.tune import schedulers
    from ray.tune.schedulers.pb2 import PB2

    kind = PB2 if case["scheduler"] == "PB2" else getattr(schedulers, case["scheduler"])
    if case["mended"] == "counts once":
        return _counting_once(kind)
    if case["mended"] == "rounds down":
        _round_survivors_down()
    return _dealing(kind, case["brackets"]) if case["brackets"] else kind


def _counting_once(kind: Any) -> Any:
    """Count each report once.

    Ray's controller passes the last report again when a trial ends, even if the scheduler has
    already got it, and MedianStoppingRule adds it to the trial's reports.
    """

    class CountingOnce(kind):  # type: ignore[misc]
        def on_trial_complete(self, controller: Any, trial: Any, result: Any) -> None:
            pass

    return CountingOnce


def _round_survivors_down() -> None:
    """Let floor(n / eta), at least 1, survive as in the paper, by changing n: Ray keeps ceil(n /
    eta)."""
    from ray.tune.schedulers import hyperband

    class RoundingDown(hyperband._Bracket):  # type: ignore[misc]
        _n: float

        def successive_halving(self, metric: str, sign: float) -> Any:
            self._n = max(1, int(self._n // self._eta)) * self._eta
            return super().successive_halving(metric, sign)

    hyperband._Bracket = RoundingDown


def _dealing(kind: Any, brackets: list[int]) -> Any:
    """ASHA without random brackets: the bracket of each trial is given."""

    class Dealing(kind):  # type: ignore[misc]
        def on_trial_add(self, controller: Any, trial: Any) -> None:
            super().on_trial_add(controller, trial)
            self._trial_info[trial.trial_id] = self._brackets[brackets[trial.run.number]]

    return Dealing


if __name__ == "__main__":
    main()
