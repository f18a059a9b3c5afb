"""Each scheduler beside Ray's on the same reports: how far does either let each trial come?

For population based training: with which config, too. What is drawn there is left out: the best
quarter of four is one, and a function scales what was taken over.

Ray's is called as its controller calls it, in the same virtual time (benchmarks/peers), with the
configurations, curves and order of events of ours. HOLDFAST_RAY_PYTHON names a Python with Ray.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure import Bench
from benchmarks.peers.clock import scaled_by
from benchmarks.quality.ours import METRIC, Drawn, Training
from benchmarks.rows import Goal, Row
from benchmarks.tasks.catalogue import task as task_of
from benchmarks.tasks.domains import domains
from holdfast import tune
from holdfast.simulate import simulate

_SCRIPT = Path(__file__).resolve().parent / "peers" / "ray_decisions.py"
_TASK = "uneven"
_SEEDS = 30
_ALIKE = Goal(of="ours", bound=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Matter:
    """One scheduler with its settings, on so many trials. `order`: as Ray is given them.

    `known`: why there are differences, where there are.
    """

    title: str
    scheduler: str
    settings: Mapping[str, Any]
    trials: int
    workers: int
    order: Sequence[int] = ()
    known: str = ""
    task: str = _TASK


def _reversed_brackets(*places: int) -> list[int]:
    """Ray fills the brackets from the one that never halves, we from the one that does most."""
    starts = [sum(places[:at]) for at in range(len(places))]
    return [
        start + member
        for start, size in sorted(zip(starts, places, strict=True), reverse=True)
        for member in range(size)
    ]


_HALVING = {"max_t": 27, "grace_period": 1, "reduction_factor": 3}
_MEDIAN = {"time_attr": "training_iteration", "grace_period": 2, "min_samples_required": 3}
_EVOLVING = {"time_attr": "training_iteration", "perturbation_interval": 4, "factor": 0.8}

MATTERS: Sequence[Matter] = [
    Matter(title="ASHA, rungs at 1, 3, 9, 27", scheduler="ASHAScheduler",
           settings=_HALVING, trials=81, workers=5),
    Matter(title="ASHA, rungs at 2, 8", scheduler="ASHAScheduler",
           settings={"max_t": 27, "grace_period": 2, "reduction_factor": 4},
           trials=64, workers=7),
    Matter(title="ASHA, reduction factor 2.5", scheduler="ASHAScheduler",
           settings={"max_t": 20, "grace_period": 1, "reduction_factor": 2.5},
           trials=64, workers=3),
    Matter(title="ASHA, last trials not stopped", scheduler="ASHAScheduler",
           settings={**_HALVING, "max_t": 9, "stop_last_trials": False}, trials=64, workers=5),
    Matter(title="median stopping", scheduler="MedianStoppingRule",
           settings=_MEDIAN, trials=30, workers=30),
    Matter(title="median stopping, 10 samples", scheduler="MedianStoppingRule",
           settings={**_MEDIAN, "grace_period": 5, "min_samples_required": 10},
           trials=30, workers=30),
    Matter(title="HyperBand, one round of 27, 12, 6 and 4", scheduler="HyperBandScheduler",
           settings={"max_t": 27, "reduction_factor": 3}, trials=49, workers=49,
           order=_reversed_brackets(27, 12, 6, 4),
           known="Ray rounds survivors up: of 4 that are left of 12 it keeps 2, the paper 1"),
    Matter(title="population based training", scheduler="PopulationBasedTraining",
           settings=_EVOLVING, trials=4, workers=4, task="uneven_quadratic"),
    Matter(title="population based training, in step", scheduler="PopulationBasedTraining",
           settings={**_EVOLVING, "synch": True}, trials=4, workers=4, task="uneven_quadratic"),
]  # fmt: skip


def measure(bench: Bench) -> list[Row]:
    """For each matter the share of trials that came to another epoch than with Ray, by seed."""
    if bench.ray_python is None:
        note = "no Ray: set HOLDFAST_RAY_PYTHON"
        return [Row(work="decisions beside Ray's", unit="", note=note)]
    return [_row(matter, bench.ray_python, bench.size(_SEEDS, 2)) for matter in MATTERS]


def _row(matter: Matter, python: str, seeds: int) -> Row:
    work = f"{matter.title}: trials that Ray decides otherwise"
    try:
        ours = [_ours(matter, seed) for seed in range(seeds)]
    except AttributeError as error:
        return Row(work=work, unit="", note=f"not there: {error}")
    rays = _rays(matter, python, seeds)
    shares = [
        sum(one != other for one, other in zip(mine, theirs, strict=True)) / matter.trials
        for mine, theirs in zip(ours, rays, strict=True)
    ]
    goal = None if matter.known else _ALIKE
    return Row(work=work, unit="", ours=shares, goal=goal, note=matter.known)


def _ours(matter: Matter, seed: int) -> list[Any]:
    """The epochs to which each trial came, and its config in the end."""
    from holdfast.tune import schedulers

    task = task_of(matter.task)
    kind: Callable[..., Any] = getattr(schedulers, matter.scheduler)
    found = simulate(
        Training(task, seed),
        param_space=domains(task.space, tune),
        tune_config=tune.TuneConfig(
            metric=METRIC,
            mode="min",
            num_samples=matter.trials,
            scheduler=kind(**_with_function(matter.settings)),
            search_alg=Drawn(task, seed),
        ),
        workers=matter.workers,
        seconds_per_iteration=lambda config: task.seconds(config),
        iterations=task.epochs,
        seed=seed,
    )
    return [[trial.iteration, dict(trial.config)] for trial in found.trials]


def _with_function(settings: Mapping[str, Any]) -> dict[str, Any]:
    given = dict(settings)
    if (factor := given.pop("factor", None)) is not None:
        given["custom_explore_fn"] = scaled_by(factor)
    return given


def _rays(matter: Matter, python: str, seeds: int) -> list[list[Any]]:
    cases = [
        {
            "scheduler": matter.scheduler,
            "settings": dict(matter.settings),
            "task": matter.task,
            "seed": seed,
            "workers": matter.workers,
            "order": list(matter.order or range(matter.trials)),
        }
        for seed in range(seeds)
    ]
    done = subprocess.run(
        [python, "-W", "ignore", str(_SCRIPT)],
        input=json.dumps(cases), text=True, capture_output=True, check=True,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]
