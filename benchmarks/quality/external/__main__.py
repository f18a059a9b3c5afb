"""`python -m benchmarks.quality.external`: runs what is missing, and prints the tables."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.quality.external import BUDGETS, MOST, development, held_out
from benchmarks.quality.external.contestants import CONTESTANTS, RANDOM
from benchmarks.quality.external.runs import FOLDER, Asked, read, run_all, tasks_of
from benchmarks.quality.external.table import told
from benchmarks.quality.tables import replace_part


def main(arguments: Sequence[str]) -> None:
    asked = _parser().parse_args(arguments)
    split = held_out if asked.held_out else development
    run_all(
        [CONTESTANTS[name] for name in asked.contestants],
        Asked(
            tasks=tasks_of(asked.families, count=asked.tasks, of=split),
            workers=asked.workers,
            seeds=asked.seeds,
            budget=asked.budget,
            again=asked.again,
        ),
        processes=asked.processes,
        folder=asked.results,
        say=lambda text: print(text, file=sys.stderr, flush=True),
    )
    table = told({name: read(name, asked.results) for name in CONTESTANTS})
    print(table)
    if asked.page:
        replace_part(asked.page, "external", table)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="quality external", description=__doc__)
    add = parser.add_argument
    add("--contestants", nargs="*", choices=CONTESTANTS, default=[RANDOM], metavar="NAME",
        help=f"none to print what is stored; {', '.join(CONTESTANTS)}")  # fmt: skip
    add("--families", nargs="+", choices=MOST, default=list(MOST), metavar="FAMILY",
        help=", ".join(MOST))  # fmt: skip
    add("--tasks", type=int, metavar="N", help="the first N of each family; by default all")
    add("--seeds", type=int, default=10, metavar="N")
    add("--workers", type=int, nargs="+", default=[8], metavar="N")
    add("--budget", type=float, choices=BUDGETS, default=BUDGETS[-1], metavar="TRAININGS")
    add("--processes", type=int, default=1, metavar="N", help="contestants at the same time")
    add("--held-out", action="store_true", help="run the tasks of the end, once")
    add("--again", action="store_true", help="run also what is stored, and forget the rest")
    add("--results", type=Path, default=FOLDER, metavar="FOLDER")
    add("--page", type=Path, metavar="FILE", help="put the tables into this page")
    return parser


if __name__ == "__main__":
    main(sys.argv[1:])
