"""Pictures of the regret over time, one for each task: `docs/pictures/regret-<task>.png`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.quality.contest import RANDOM
from benchmarks.quality.contests import CONTESTS
from benchmarks.quality.results import OURS, Result
from benchmarks.quality.running import NAMES

_DOTS_PER_INCH = 80
# Smaller values, such as 0 where the best of a table was found, are drawn here: the axis is
# logarithmic.
_LEAST = 1e-3


def draw_all(results: Sequence[Result], folder: Path) -> None:
    """Draw holdfast's algorithms on each task, and each algorithm with its peers."""
    folder.mkdir(parents=True, exist_ok=True)
    fields = sorted({(found.task, found.workers) for found in results})
    for task, workers in fields:
        ours = [r for r in results if (r.side, r.task, r.workers) == (OURS, task, workers)]
        if ours:
            many = "1 worker" if workers == 1 else f"{workers} workers"
            draw(ours, f"{task}, {many}", folder / f"regret-{_slug(task)}-{workers}.png")
    for contest in CONTESTS:
        names = {OURS: contest.name, **contest.peers, **contest.kin}
        if len(names) > 1:
            _draw_peers(results, contest.name, names, contest.tasks, contest.field.workers, folder)


def draw(results: Sequence[Result], title: str, file: Path) -> None:
    """Draw one picture of medians, and bands from quartile to quartile."""
    figure = Figure(figsize=(8, 4), layout="constrained")
    panel = figure.subplots()
    for number, found in enumerate(sorted(results, key=_place)):
        _line(panel, found, found.algorithm, number)
    _dress(panel, title)
    figure.legend(loc="outside right upper", fontsize="small")
    _save(figure, file)


def _draw_peers(
    results: Sequence[Result],
    name: str,
    names: dict[str, str],
    tasks: Sequence[str],
    workers: int,
    folder: Path,
) -> None:
    figure = Figure(figsize=(3.2 * len(tasks), 3.2), layout="constrained")
    panels = figure.subplots(1, len(tasks), squeeze=False)[0]
    drawn = 0
    for panel, task in zip(panels, tasks, strict=True):
        wanted = [(OURS, RANDOM), *names.items()]
        for number, (side, algorithm) in enumerate(wanted):
            for found in results:
                if found.key == (side, algorithm, task, workers):
                    label = RANDOM if algorithm == RANDOM else NAMES[side]
                    _line(panel, found, label, number)
                    drawn += side != OURS
        _dress(panel, task)
    if drawn:
        panels[0].legend(fontsize="x-small")
        figure.suptitle(name)
        _save(figure, folder / f"beside-{_slug(name)}.png")


def _slug(name: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in name.lower()).split())


def _place(found: Result) -> tuple[bool, str]:
    return found.algorithm != RANDOM, found.algorithm


def _line(panel: Axes, found: Result, label: str, number: int) -> None:
    known = [
        (moment, *(max(_LEAST, part) for part in parts))
        for moment, parts in zip(found.moments, found.quartiles, strict=True)
        if parts is not None
    ]
    moments, low, middle, high = zip(*known, strict=True)
    color = "black" if found.algorithm == RANDOM else f"C{number - 1}"
    panel.step(moments, middle, where="post", label=label, color=color, linewidth=1.4)
    panel.fill_between(moments, low, high, step="post", alpha=0.1, color=color, linewidth=0)


def _dress(panel: Axes, title: str) -> None:
    panel.set_title(title, fontsize="medium")
    panel.set_yscale("log")
    panel.set_xlabel("time, in whole trainings")
    panel.set_ylabel("regret (1: a middling configuration)", fontsize="small")
    panel.grid(alpha=0.3)


def _save(figure: Figure, file: Path) -> None:
    # Without the library's version in the file, so that the same figures give the same file.
    figure.savefig(file, dpi=_DOTS_PER_INCH, metadata={"Software": None})
