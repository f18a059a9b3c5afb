"""The rows of a benchmark, with samples and goals, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

_COLUMNS = ("work", "ours", "reference", "ratio", "Ray", "must reach", "met?")
_UNMEASURED = "not measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A bound on holdfast's median, or on its ratio to the reference's."""

    of: Literal["ours", "ratio"]
    bound: float
    at_least: bool = False

    def is_met(self, value: float) -> bool:
        return value >= self.bound if self.at_least else value <= self.bound

    def text(self, unit: str) -> str:
        sign = "≥" if self.at_least else "≤"
        amount = quantity(self.bound, unit) if self.of == "ours" else f"{self.bound:g}"
        return f"{'ratio ' if self.of == 'ratio' else ''}{sign} {amount}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line: all samples in `unit`, in the order in which they were taken.

    `reference_name` describes the reference. A row without samples has a `note` with the reason.
    """

    work: str
    unit: str
    ours: Sequence[float] = ()
    reference: Sequence[float] = ()
    reference_name: str = ""
    ray: Sequence[float] = ()
    goal: Goal | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Holdfast's median divided by the reference's, unless that is zero."""
        reference = _middle(self.reference)
        return median(self.ours) / reference if self.ours and reference else None

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None if there is no goal, or nothing to compare with it."""
        value = self.ratio if self.goal and self.goal.of == "ratio" else _middle(self.ours)
        return None if self.goal is None or value is None else self.goal.is_met(value)

    def as_json(self) -> dict[str, Any]:
        """The row with its raw samples."""
        return {
            "work": self.work,
            "unit": self.unit,
            "ours": _samples(self.ours),
            "reference": {**_samples(self.reference), "is": self.reference_name},
            "ray": _samples(self.ray),
            "ratio": self.ratio,
            "must_reach": self.goal.text(self.unit) if self.goal else None,
            "met": self.met,
            "note": self.note,
        }

    def cells(self) -> tuple[str, ...]:
        met = {None: "", True: "yes", False: "NO"}[self.met]
        reference = _amount(self.reference, self.unit)
        return (
            self.work,
            _amount(self.ours, self.unit) or self.note,
            f"{reference} ({self.reference_name})" if reference else "",
            "" if self.ratio is None else f"{self.ratio:.2f}",
            _amount(self.ray, self.unit) or _UNMEASURED,
            self.goal.text(self.unit) if self.goal else "",
            met,
        )


def quantity(value: float, unit: str) -> str:
    """Three digits, and no exponent: `0.123 s`, `13,412 /s`."""
    text = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{text} {unit}".rstrip()


def table(rows: Sequence[Row]) -> str:
    """A Markdown table whose columns also line up in a terminal."""
    return aligned([_COLUMNS, *(row.cells() for row in rows)])


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """The same of cells, the first line of which are the heads of the columns."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    texts = [" | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
             for line in lines]  # fmt: skip
    rule = "-|-".join("-" * width for width in widths)
    return "\n".join(f"| {text} |" for text in (texts[0], rule, *texts[1:]))


def _middle(samples: Sequence[float]) -> float | None:
    return median(samples) if samples else None


def _amount(samples: Sequence[float], unit: str) -> str:
    return quantity(median(samples), unit) if samples else ""


def _samples(samples: Sequence[float]) -> dict[str, Any]:
    return {"median": _middle(samples), "samples": list(samples)}
