"""One algorithm of ours, where it runs and beside whom."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.quality.ours import Ours
from benchmarks.tasks.task import Field

RANDOM = "random search"
SEEDS = 30
EIGHT = Field(workers=8, trainings=8)
COMMON = ("branin", "hartmann3", "network", "digits", "wine")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """`peers`: the name of the same algorithm there. `kin`: of another one for the same purpose,
    which is shown beside it, and not held against it. `beats_random`: its paper says so.
    `shown_at`: the classes in whose rows of the docs' tables the result is told. `seeds`: so many
    at most, where more would take too long.

    `ours` is called when it runs, and raises ImportError or AttributeError where it is not there.
    """

    name: str
    ours: Callable[[], Ours]
    tasks: Sequence[str] = COMMON
    field: Field = EIGHT
    peers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    kin: Mapping[str, str] = dataclasses.field(default_factory=dict)
    beats_random: bool = True
    paper: str = ""
    shown_at: Sequence[str] = ()
    seeds: int = SEEDS
