"""The table of external tasks in docs/quality.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from benchmarks.quality.external import BUDGETS, MOST, development, held_out
from benchmarks.quality.external.contestants import CONTESTANTS, RANDOM, REFERENCES
from benchmarks.quality.external.runs import Runs
from benchmarks.quality.external.shares import Share, share_of
from benchmarks.quality.tables import markdown

_ABOUT: Mapping[str, str] = {
    "lcbench": "LCBench, trained to the end",
    "curves": "LCBench with early stopping",
    "xgboost": "rbv2_xgboost, conditional",
    "noisy": "Noisy functions",
    "deceptive": "Deceptive functions",
    "categories": "Pure categories",
    "tables": "HPOBench, HPOLib and NAS-Bench-201, tables of real trainings",
    "bbob": "BBOB, 24 functions of 5 numbers",
}
_WORKERS = (8, 1, 64)
_SETS: Sequence[tuple[str, Callable[[str], list[str]]]] = [
    ("held-out tasks", held_out),
    ("development tasks", development),
]


def told(found: Mapping[str, Runs]) -> str:
    """All tables for which there are runs: tasks of the end first."""
    parts = [
        part
        for about, tasks in _SETS
        for family in MOST
        for workers in _WORKERS
        if (part := _table(found, family, tasks(family), workers, about))
    ]
    return "\n\n".join([*parts, *_failures(found)])


def _failures(found: Mapping[str, Runs]) -> list[str]:
    lines = [f"* {name}: {runs.failed}" for name, runs in found.items() if runs.failed]
    return ["Not run:\n\n" + "\n".join(lines)] if lines else []


def _table(
    found: Mapping[str, Runs], family: str, tasks: Sequence[str], workers: int, about: str
) -> str:
    budgets = [budget for budget in BUDGETS if budget <= MOST[family]]
    rows = [
        row
        for name in CONTESTANTS
        if (row := _row(found, name, tasks, workers, budgets)) is not None
    ]
    if len(rows) < 2:
        return ""
    many = "1 worker" if workers == 1 else f"{workers} workers"
    against = [f"than {name}" for name in REFERENCES]
    head = ["algorithm", "tasks, seeds", *(f"{budget:g}" for budget in budgets), *against]
    return f"**{_ABOUT[family]}**, {about}, {many}\n\n{markdown(head, rows)}"


def _row(
    found: Mapping[str, Runs],
    name: str,
    tasks: Sequence[str],
    workers: int,
    budgets: Sequence[float],
) -> Sequence[str] | None:
    def shares(other: str) -> list[Share | None]:
        return [share_of(found[name], found[other], tasks, workers, budget) for budget in budgets]

    over_random = shares(RANDOM)
    known = [one for one in over_random if one is not None]
    if not known:
        return None
    cells = [cell(one, is_base=name == RANDOM) for one in over_random]
    verdicts = [_verdict(budgets, shares(other)) if name != other else "" for other in REFERENCES]
    fewest = min(known, key=lambda one: (one.tasks, one.seeds))
    return [name, f"{fewest.tasks}, {fewest.seeds}", *cells, *verdicts]


def cell(one: Share | None, *, is_base: bool) -> str:
    """A share with its interval; the regret of those of whose regret the others are a share."""
    if one is None:
        return ""
    if is_base:
        return f"regret {one.regret:.3f}"
    return f"{one.share:.2f} ({one.low:.2f} to {one.high:.2f})"


def _verdict(budgets: Sequence[float], shares: Sequence[Share | None]) -> str:
    """As in "better at 25, 50; worse at 12.5"."""
    known = [one for one in shares if one is not None]
    if not any(one.is_enough for one in known):
        return "too few runs" if known else ""
    parts = []
    for verdict in ("better", "worse"):
        at = [
            f"{budget:g}"
            for budget, one in zip(budgets, shares, strict=True)
            if one is not None and one.verdict == verdict
        ]
        if at:
            parts.append(f"{verdict} at {', '.join(at)}")
    return "; ".join(parts) or "not shown"
