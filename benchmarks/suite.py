"""The benchmarks by name, and the command that runs them."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.fleet import deciding as deciding_on_nodes
from benchmarks.fleet import losing, rays, starting
from benchmarks.fleet import reports as node_reports
from benchmarks.measure import Bench, ScriptFailed
from benchmarks.restores import million, reading, restoring
from benchmarks.rows import Row, table
from benchmarks.runs import (
    controller,
    importing,
    memory,
    printing,
    reports,
    startup,
    sustained,
    trackers,
    trials,
    viewing,
    waiting_costs,
    warmth,
)
from benchmarks.schedulers import searching, simulating, suggesting
from benchmarks.storage import checkpoints, downloads, s3, short_ones, stalled, uploads
from benchmarks.training import batches, objects, ranks


def _quality(bench: Bench) -> list[Row]:
    from benchmarks.quality.measuring import measure  # imports SciPy, which takes seconds

    return measure(bench)


def _decisions(bench: Bench) -> list[Row]:
    from benchmarks.schedulers.decisions import measure

    return measure(bench)


def _page(bench: Bench) -> list[Row]:
    from benchmarks.page.measuring import measure  # imports the generator's search space

    return measure(bench)


BENCHMARKS: Mapping[str, Callable[[Bench], list[Row]]] = {
    "import": importing.measure,
    "startup": startup.measure,
    "warmth": warmth.measure,
    "trials": trials.measure,
    "reports": reports.measure,
    "sustained": sustained.measure,
    "printing": printing.measure,
    "controller": controller.measure,
    "node-reports": node_reports.measure,
    "nodes-start": starting.measure,
    "node-loss": losing.measure,
    "nodes-decide": deciding_on_nodes.measure,
    "nodes-ray": rays.measure,
    "checkpoint": checkpoints.measure,
    "s3": s3.measure,
    "s3-short": short_ones.measure,
    "uploads": uploads.measure,
    "downloads": downloads.measure,
    "stalled": stalled.measure,
    "memory": memory.measure,
    "million": million.measure,
    "objects": objects.measure,
    "ranks": ranks.measure,
    "batches": batches.measure,
    "restore": restoring.measure,
    "reading": reading.measure,
    "view": viewing.measure,
    "idle": waiting_costs.measure,
    "page": _page,
    "trackers": trackers.measure,
    "simulating": simulating.measure,
    "searching": searching.measure,
    "suggesting": suggesting.measure,
    "quality": _quality,
    "decisions": _decisions,
}

FAILED = "failed"


def main(arguments: Sequence[str]) -> None:
    """Run the chosen benchmarks, print the table, write the JSON.

    Raises SystemExit at the end if a benchmark could not be run.
    """
    asked = _parser().parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=asked.directory) as root:
        bench = Bench(
            root=Path(root),
            runs=asked.runs or (1 if asked.quick else 5),
            quick=asked.quick,
            long=asked.long,
            with_optuna=asked.with_optuna,
            ray_python=os.environ.get("HOLDFAST_RAY_PYTHON") or None,
        )
        facts = machine.facts(bench.root)
        measured = _measure(bench, asked.only or list(BENCHMARKS))
    print(f"{_headline(facts, bench)}\n")
    print(table([row for rows in measured.values() for row in rows]))
    if asked.json:
        asked.json.write_text(json.dumps(_as_json(facts, bench, measured), indent=1) + "\n")
    if any(row.note == FAILED for rows in measured.values() for row in rows):
        raise SystemExit(1)


def _as_json(
    facts: Mapping[str, Any], bench: Bench, measured: Mapping[str, list[Row]]
) -> dict[str, Any]:
    return {
        "machine": facts,
        "versions": machine.versions(),
        "runs": bench.runs,
        "quick": bench.quick,
        "benchmarks": {name: [row.as_json() for row in rows] for name, rows in measured.items()},
    }


def _measure(bench: Bench, names: Sequence[str]) -> dict[str, list[Row]]:
    measured: dict[str, list[Row]] = {}
    for name in names:
        bench.say(f"{name} ...")
        try:
            measured[name] = BENCHMARKS[name](bench)
        except ScriptFailed as error:  # keep an hour of other measurements
            bench.say(f"{name} failed: {error}")
            measured[name] = [Row(work=name, unit="", note=FAILED)]
    return measured


def _headline(facts: Mapping[str, Any], bench: Bench) -> str:
    return (
        f"{facts['cpu']}, {facts['cores']} cores, {facts['kernel']}, Python {facts['python']}; "
        f"load {facts['load']:.1f}, a new file {facts['new_file_us']:.0f} µs; "
        f"medians of {bench.runs}{' (quick: sizes too small to judge by)' if bench.quick else ''}"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=Path(sys.argv[0]).name, description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(BENCHMARKS), metavar="NAME",
                        help=f"of {', '.join(BENCHMARKS)}")  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all samples there")
    parser.add_argument("--quick", action="store_true", help="small sizes: does it run at all?")
    parser.add_argument(
        "--long", action="store_true", help="5,100 trials for the flatness, 10 GB for downloads"
    )
    parser.add_argument("--with-optuna", action="store_true",
                        help="page: also of optuna-dashboard; an hour for the export")  # fmt: skip
    parser.add_argument("--runs", type=int, metavar="N", help="turns of each (5; 1 if quick)")
    parser.add_argument("--directory", type=Path, help="on the disk to measure, with 6 GB free")
    return parser
