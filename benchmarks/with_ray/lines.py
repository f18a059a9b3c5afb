"""The lines of the comparison, with all samples, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.rows import aligned, quantity

_FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One figure of one run."""

    work: str
    unit: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The samples of each side, in the order in which they were taken."""

    work: str
    unit: str
    samples: Mapping[str, Sequence[float]]

    def middle(self, side: str) -> float | None:
        return median(self.samples[side]) if side in self.samples else None

    def ratio(self, ours: str, theirs: str) -> float | None:
        """The first side's median divided by the other's."""
        first, other = self.middle(ours), self.middle(theirs)
        return first / other if first is not None and other else None

    def as_json(self, ours: str, theirs: str) -> dict[str, Any]:
        sides = {
            side: {"median": self.middle(side), "samples": list(self.samples.get(side, ()))}
            for side in (ours, theirs)
        }
        return {"work": self.work, "unit": self.unit, "ratio": self.ratio(ours, theirs), **sides}

    def cells(self, ours: str, theirs: str) -> tuple[str, ...]:
        ratio = self.ratio(ours, theirs)
        found = [self.middle(side) for side in (ours, theirs)]
        amounts = [_FAILED if one is None else quantity(one, self.unit) for one in found]
        return (self.work, *amounts, "" if ratio is None else f"{ratio:.3g}")


def lines(taken: Iterable[tuple[str, Sample]]) -> list[Line]:
    """A line for each work, in the order in which they appear, of (side, sample)."""
    units: dict[str, str] = {}
    samples: dict[str, dict[str, list[float]]] = {}
    for side, sample in taken:
        units[sample.work] = sample.unit
        samples.setdefault(sample.work, {}).setdefault(side, []).append(sample.value)
    return [Line(work=work, unit=unit, samples=samples[work]) for work, unit in units.items()]


def table(found: Sequence[Line], ours: str, theirs: str) -> str:
    """A Markdown table; a ratio below 1 means that the first side takes less."""
    return aligned(
        [("work", ours, theirs, "ratio"), *(line.cells(ours, theirs) for line in found)]
    )
