"""A contest: one of holdfast's algorithms, its tasks, and its peers."""

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
    """One algorithm of holdfast against its peers.

    `peers`: the name of the same algorithm in each peer. `kin`: another algorithm for the same
    purpose, which is shown for comparison, but not tested. `beats_random`: its paper claims so.
    `shown_at`: the classes in whose rows of the docs' tables the result appears. `seeds`: at most
    this many, if more would take too long.

    `ours` is called when it runs, and raises ImportError or AttributeError if it is missing.
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
