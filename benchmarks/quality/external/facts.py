"""`python -m benchmarks.quality.external.facts [TASK ...]`: adds what data/hpo/facts.json lacks.

Of each surrogate: the best value that a thorough search finds (10,000 random configurations, then
50 generations of 200 neighbours of the 30 best), the median of 2,000 random configurations,
the mean time of their trainings, and why the rule of docs/quality.md drops the task, if it does.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from random import Random

import numpy as np

from benchmarks.tasks.space import Space
from benchmarks.tasks.surrogates import EPOCHS, FACTS, FAMILIES, data_sets, predicted

TYPICAL_OF = 2_000
DRAWN = 10_000
GENERATIONS, NEIGHBOURS, PARENTS = 50, 200, 30
CURVES = 100
# The rule, fixed before any algorithm was run on a surrogate.
SATURATED, FLAT, NEEDLE, UNTIMED_SHARE = 0.0005, 0.005, 0.5, 0.01

Parts = list[float]
Values = Callable[[Sequence[Parts]], np.ndarray]


def main(asked: Sequence[str]) -> None:
    found = json.loads(FACTS.read_text()) if FACTS.exists() else {}
    for family in FAMILIES:
        for data_set in data_sets(family):
            task = f"{family}/{data_set}"
            if task in asked or (not asked and task not in found):
                found |= _facts(family, data_set)
                print(f"{task}: {found[task]}", flush=True)
                _write(found)


def _write(found: dict[str, object]) -> None:
    lines = [f"{json.dumps(name)}: {json.dumps(fact)}" for name, fact in sorted(found.items())]
    FACTS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _facts(family: str, data_set: str) -> dict[str, dict[str, object]]:
    space, random = FAMILIES[family].space, Random(f"{family}/{data_set}")

    def values(points: Sequence[Parts]) -> np.ndarray:
        return predicted(family, data_set, [_config(space, parts) for parts in points])[0]

    drawn = [[random.random() for _ in space] for _ in range(DRAWN)]
    typical = [_config(space, parts) for parts in drawn[:TYPICAL_OF]]
    errors, seconds = predicted(family, data_set, typical)
    median, mean_s = float(np.median(errors)), float(np.mean(seconds))
    one_of_1000 = float(np.quantile(values(drawn), 0.001))
    points, ends = _searched(values, drawn, random)
    best = float(ends[0])
    untimed = float(np.mean(seconds <= 0.1))
    known = {"median": round(median, 6), "mean_s": round(mean_s, 3)}

    def one(best: float) -> dict[str, object]:
        why = (
            "saturated" if best <= SATURATED
            else "flat" if median - best < FLAT
            else "needle" if (one_of_1000 - best) / (median - best) > NEEDLE
            else "untimed" if untimed > UNTIMED_SHARE
            else None
        )  # fmt: skip
        return {"best": round(best, 6), **known, "dropped": why}

    made = {f"{family}/{data_set}": one(best)}
    if family == "lcbench":
        configs = [_config(space, parts) for parts in points[:CURVES]]
        epochs = [epoch for epoch in range(1, EPOCHS + 1) for _ in configs]
        least = float(predicted(family, data_set, configs * EPOCHS, epochs)[0].min())
        made[f"curves/{data_set}"] = one(min(best, least))
    return made


def _searched(
    values: Values, drawn: list[Parts], random: Random
) -> tuple[list[Parts], np.ndarray]:
    """All points and their values, the best first."""
    points, ends = list(drawn), values(drawn)
    width = 0.3
    for _ in range(GENERATIONS):
        order = np.argsort(ends, kind="stable")
        parents = [points[at] for at in order[:PARENTS]]
        children = [_near(random.choice(parents), width, random) for _ in range(NEIGHBOURS)]
        points, ends = points + children, np.concatenate([ends, values(children)])
        width *= 0.92
    order = np.argsort(ends, kind="stable")
    return [points[at] for at in order], ends[order]


def _near(parts: Parts, width: float, random: Random) -> Parts:
    """A third of the parts moved."""
    return [
        min(1.0, max(0.0, part + random.gauss(0.0, width))) if random.random() < 0.35 else part
        for part in parts
    ]


def _config(space: Space, parts: Parts) -> dict[str, object]:
    config: dict[str, object] = {}
    for axis, part in zip(space, parts, strict=True):
        if axis.exists(config):
            config[axis.name] = axis.at(part)
    return config


if __name__ == "__main__":
    main(sys.argv[1:])
