"""Each scheduler compared with Ray's on the same reports: how far does each let every trial come?

For population based training, also with which config. Random choices are removed: the best quarter
of four is one, and a function scales a copied config. The bandit of PB2 has its own parameter, on
which nothing depends.

Ray's schedulers are called as its controller calls them, in the same virtual time
(benchmarks/peers), with holdfast's configurations, curves and order of events. HOLDFAST_RAY_PYTHON
names a Python with Ray.
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
from holdfast.scheduler.policies.asha import drawn_bracket
from holdfast.simulate import simulate

_SCRIPT = Path(__file__).resolve().parents[1] / "peers" / "ray_decisions.py"
_TASK = "uneven"
_ALIKE = Goal(of="ours", bound=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Matter:
    """One scheduler with its settings, on this many trials. `order`: the order in which Ray gets
    them.

    `known`: the reason for known differences. `mended`: how Ray's code is changed to follow the
    papers (benchmarks/peers/ray_decisions.py), to show that nothing else differs. `rungs`: for
    several brackets of ASHA, the rungs of each; Ray's scheduler gets the brackets that holdfast
    has drawn.
    """

    title: str
    scheduler: str
    settings: Mapping[str, Any]
    trials: int
    workers: int
    order: Sequence[int] = ()
    known: str = ""
    mended: str = ""
    rungs: Sequence[int] = ()
    task: str = _TASK
    seeds: int = 30


def _reversed_brackets(*places: int) -> list[int]:
    """Ray fills the brackets from the one that never halves, holdfast from the one that halves
    most."""
    starts = [sum(places[:at]) for at in range(len(places))]
    return [
        start + member
        for start, size in sorted(zip(starts, places, strict=True), reverse=True)
        for member in range(size)
    ]


_HALVING = {"max_t": 27, "grace_period": 1, "reduction_factor": 3}
_MEDIAN = {"time_attr": "training_iteration", "grace_period": 2, "min_samples_required": 3}
_EVOLVING = {"time_attr": "training_iteration", "perturbation_interval": 4, "factor": 0.8}
_BANDIT = {**_EVOLVING, "hyperparam_bounds": {"unused": [0.0, 1.0]}}

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
    Matter(title="ASHA, 3 brackets", scheduler="ASHAScheduler",
           settings={**_HALVING, "brackets": 3}, trials=81, workers=5, rungs=(4, 3, 2)),
    Matter(title="median stopping", scheduler="MedianStoppingRule",
           settings=_MEDIAN, trials=30, workers=30,
           known="Ray counts the last report of a trial that has ended twice in its average"),
    Matter(title="median stopping, each report counted once", scheduler="MedianStoppingRule",
           settings=_MEDIAN, trials=30, workers=30, mended="counts once"),
    Matter(title="median stopping, 10 samples", scheduler="MedianStoppingRule",
           settings={**_MEDIAN, "grace_period": 5, "min_samples_required": 10},
           trials=30, workers=30),
    Matter(title="HyperBand, one round of 27, 12, 6 and 4", scheduler="HyperBandScheduler",
           settings={"max_t": 27, "reduction_factor": 3}, trials=49, workers=49,
           order=_reversed_brackets(27, 12, 6, 4),
           known="Ray rounds survivors up: of 4 that are left of 12 it keeps 2, the paper 1"),
    Matter(title="HyperBand, survivors rounded down", scheduler="HyperBandScheduler",
           settings={"max_t": 27, "reduction_factor": 3}, trials=49, workers=49,
           order=_reversed_brackets(27, 12, 6, 4), mended="rounds down"),
    Matter(title="population based training", scheduler="PopulationBasedTraining",
           settings=_EVOLVING, trials=4, workers=4, task="uneven_quadratic"),
    Matter(title="population based training, in step", scheduler="PopulationBasedTraining",
           settings={**_EVOLVING, "synch": True}, trials=4, workers=4, task="uneven_quadratic"),
    Matter(title="PB2", scheduler="PB2",
           settings=_BANDIT, trials=4, workers=4, task="uneven_quadratic", seeds=10),
    Matter(title="PB2, in step", scheduler="PB2",
           settings={**_BANDIT, "synch": True}, trials=4, workers=4, task="uneven_quadratic",
           seeds=10),
]  # fmt: skip


def measure(bench: Bench) -> list[Row]:
    """For each scheduler, the share of trials that came to another epoch than with Ray."""
    if bench.ray_python is None:
        note = "no Ray: set HOLDFAST_RAY_PYTHON"
        return [Row(work="decisions compared with Ray's", unit="", note=note)]
    return [_row(matter, bench.ray_python, bench.size(matter.seeds, 2)) for matter in MATTERS]


def _row(matter: Matter, python: str, seeds: int) -> Row:
    work = f"{matter.title}: trials that Ray decides otherwise"
    try:
        ours = [_ours(matter, seed) for seed in range(seeds)]
    except AttributeError as error:
        return Row(work=work, unit="", note=f"not there: {error}")
    rays = _rays(matter, python, [made.trial_ids for made in ours])
    pairs = [pair for made, ends in zip(ours, rays, strict=True)
             for pair in zip(made.ends, ends, strict=True)]  # fmt: skip
    # All seeds together: a difference in one of thirty would not show in a median.
    share = sum(one != other for one, other in pairs) / len(pairs)
    goal = None if matter.known else _ALIKE
    return Row(work=work, unit="", ours=[share], goal=goal, note=matter.known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """`ends`: the last epoch of each trial, and its last config."""

    ends: Sequence[Any]
    trial_ids: Sequence[str]


def _ours(matter: Matter, seed: int) -> Played:
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
    return Played(
        ends=[[trial.iteration, task.given(trial.config)] for trial in found.trials],
        trial_ids=[trial.trial_id for trial in found.trials],
    )


def _with_function(settings: Mapping[str, Any]) -> dict[str, Any]:
    given = dict(settings)
    if (factor := given.pop("factor", None)) is not None:
        given["custom_explore_fn"] = scaled_by(factor)
    return given


def _rays(matter: Matter, python: str, trial_ids: Sequence[Sequence[str]]) -> list[list[Any]]:
    """Ray's results; `trial_ids` are those of holdfast's runs, by seed."""
    cases = [
        {
            "scheduler": matter.scheduler,
            "settings": dict(matter.settings),
            "task": matter.task,
            "seed": seed,
            "workers": matter.workers,
            "order": list(matter.order or range(matter.trials)),
            "mended": matter.mended,
            "brackets": [drawn_bracket(one, matter.rungs, seed=seed) for one in known]
            if matter.rungs
            else [],
        }
        for seed, known in enumerate(trial_ids)
    ]
    done = subprocess.run(
        [python, "-W", "ignore", str(_SCRIPT)],
        input=json.dumps(cases), text=True, capture_output=True, check=True,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]
