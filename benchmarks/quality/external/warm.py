"""`python -m benchmarks.quality.external.warm`: what earlier runs are worth to `AutoSearch`.

It searches on each data set and starts from runs on FROM other data sets, drawn for each seed.
Random search and `AutoSearch` made these runs in turn, with TRAININGS each. Misleading runs are
the same ones, with their worst configurations, or random ones, in place of the best.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.quality.external import MOST, development, field_of, regrets
from benchmarks.quality.external.runs import FOLDER, Runs, read, write
from benchmarks.quality.external.shares import share_of
from benchmarks.quality.external.table import cell
from benchmarks.quality.ours import METRIC, Drawn, Ours, Training, run
from benchmarks.quality.tables import markdown, replace_part
from benchmarks.tasks.catalogue import task as task_of
from benchmarks.tasks.domains import conditional
from benchmarks.tasks.task import Task
from holdfast import tune
from holdfast.simulate import simulate
from holdfast.tune.search import AutoSearch
from holdfast.tune.search.warm_start import EarlierRun

AT = (6.25, 12.5, 25.0, 50.0)
WORKERS, FROM, TRAININGS = 8, 4, 50
Configs = list[dict[str, Any]]
"""Those of a run, the best first."""


def _shuffled(configs: Configs) -> Configs:
    return Random(0).sample(configs, len(configs))


COLD = "without"
ARMS: dict[str, Callable[[Configs], Configs] | None] = {
    COLD: None,
    "earlier runs": lambda configs: configs,
    "misleading: drawn by lot": _shuffled,
    "misleading: the worst": lambda configs: configs[::-1],
}


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="quality external warm", description=__doc__)
    parser.add_argument("--family", choices=MOST, default="lcbench", metavar="FAMILY")
    parser.add_argument("--tasks", type=int, default=12, metavar="N")
    parser.add_argument("--seeds", type=int, default=5, metavar="N")
    parser.add_argument("--again", action="store_true", help="forget the stored runs")
    parser.add_argument("--results", type=Path, default=FOLDER, metavar="FOLDER")
    parser.add_argument("--page", type=Path, metavar="FILE", help="put the table into this page")
    asked = parser.parse_args(arguments)
    names = development(asked.family)[: asked.tasks]
    found = {arm: Runs() if asked.again else read(_file(arm), asked.results) for arm in ARMS}
    for seed in range(asked.seeds):
        for name in names:
            for arm, runs in found.items():
                known = runs.of(name, WORKERS)
                if seed not in known:
                    known[seed] = dict(zip(AT, _regrets(name, seed, arm), strict=True))
                    write(_file(arm), runs, asked.results)
        print(f"seed {seed} of {asked.seeds}", file=sys.stderr, flush=True)
    table = told(found, names)
    print(table)
    if asked.page:
        replace_part(asked.page, "warm", table)


def told(found: dict[str, Runs], names: Sequence[str]) -> str:
    rows = []
    for arm, runs in found.items():
        shares = [share_of(runs, found[COLD], names, WORKERS, at) for at in AT]
        rows.append([arm, *(cell(one, is_base=arm == COLD) for one in shares)])
    return markdown(["`warm_start`", *(f"{at:g}" for at in AT)], rows)


def _file(arm: str) -> str:
    return f"warm start {arm}"


def _regrets(name: str, seed: int, arm: str) -> list[float]:
    spoilt = ARMS[arm]
    runs = [] if spoilt is None else [spoilt(one) for one in _others(name, seed)]
    earlier = [
        EarlierRun(name=str(i), metric=METRIC, mode="min", configs=configs).plain()
        for i, configs in enumerate(runs)
    ]
    ours = Ours(
        search=lambda task, seed: AutoSearch(seed=seed, warm_start=earlier),
        space=lambda task: conditional(task.space, tune),
    )
    task = task_of(name)
    points = run(ours, task, seed, field_of(AT[-1], WORKERS))
    return regrets(task, points, AT, WORKERS)


def _others(name: str, seed: int) -> list[Configs]:
    others = [one for one in development(name.partition("/")[0]) if one != name]
    chosen = Random(f"{name}/{seed}").sample(others, FROM)
    return [_earlier(one, seed, by_model=bool(i % 2)) for i, one in enumerate(chosen)]


@cache
def _earlier(name: str, seed: int, *, by_model: bool) -> Configs:
    """An earlier run, with a seed that no new one has."""
    task, seed = task_of(name), 1000 + seed
    found = simulate(
        Training(task, seed),
        param_space=conditional(task.space, tune),
        tune_config=tune.TuneConfig(
            metric=METRIC,
            mode="min",
            search_alg=AutoSearch(seed=seed) if by_model else Drawn(task, seed),
            num_samples=TRAININGS,
        ),
        workers=WORKERS,
        seconds_per_iteration=_seconds(task),
        iterations=task.epochs,
        seed=seed,
    )
    ranked = sorted(found.trials, key=lambda one: math.inf if one.best is None else one.best)
    return [dict(one.config) for one in ranked]


def _seconds(task: Task) -> Callable[[dict[str, Any]], float]:
    return lambda config: task.seconds(task.given(config))


if __name__ == "__main__":
    main(sys.argv[1:])
