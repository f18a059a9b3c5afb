"""Measures holdfast and Ray in turns on this machine, with one script for both.

The script has Ray's names: Python runs it on Ray, `holdfast ray` on holdfast. Ray listens on
loopback and sends no statistics. All its processes and files are gone at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.measure import ScriptFailed
from benchmarks.rows import quantity
from benchmarks.with_ray.lines import Sample, lines, table
from benchmarks.with_ray.running import Side
from benchmarks.with_ray.works import QUICK, WORKS, Field, Sizes
from holdfast.runtime.process_control import adopt_orphans

_OURS = "holdfast"
_RUNS = 3


def main(arguments: Sequence[str]) -> None:
    """Print the table, write the JSON; also of what was measured before Ctrl-C.

    Raises SystemExit at the end if a run failed or was interrupted.
    """
    asked = parser().parse_args(arguments)
    adopt_orphans()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as with Ctrl-C
    sides = (
        Side(name=_OURS, command=(sys.executable, "-m", "holdfast.ray")),
        Side(name=_name_of_ray(asked.ray_python), command=(asked.ray_python.absolute(),)),
    )
    runs = asked.runs or (1 if asked.quick else _RUNS)
    sizes = QUICK if asked.quick else Sizes()
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=asked.directory) as root,
        tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as short,
    ):
        facts = machine.facts(Path(root))
        field = Field(root=Path(root), short=Path(short), sizes=sizes)
        taken, failed = _measure(field, sides, asked.only or list(WORKS), runs)
    found = lines(taken)
    ours, theirs = (side.name for side in sides)
    facts["load_at_end"] = os.getloadavg()[0]
    print(f"{_headline(facts, runs, is_quick=asked.quick)}\n\n{table(found, ours, theirs)}")
    if asked.json:
        kept = {
            "machine": facts,
            "versions": machine.versions(),
            "runs": runs,
            "sizes": asdict(sizes),
            "lines": [line.as_json(ours, theirs) for line in found],
        }
        asked.json.write_text(json.dumps(kept, indent=1) + "\n")
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def _measure(
    field: Field, sides: Sequence[Side], works: Sequence[str], runs: int
) -> tuple[list[tuple[str, Sample]], list[str]]:
    """The samples, and what failed. The sides take turns in each work."""
    taken: list[tuple[str, Sample]] = []
    failed: list[str] = []
    # The first use, which is not counted, compiles and caches the modules.
    turns = [("first", 0), *((name, turn) for name in works for turn in range(1, runs + 1))]
    for name, turn in turns:
        for side in sides:
            try:
                samples = WORKS[name](field, side)
            except (ScriptFailed, KeyboardInterrupt) as error:  # keep the other measurements
                failed.append(f"{name} with {side.name}")
                print(f"{failed[-1]}: {str(error) or 'interrupted'}", file=sys.stderr)
                if isinstance(error, KeyboardInterrupt):
                    return taken, failed
                continue
            amounts = ", ".join(quantity(one.value, one.unit) for one in samples)
            print(f"{name}, turn {turn} of {runs}, {side.name}: {amounts}", file=sys.stderr)
            taken += [(side.name, sample) for sample in samples if turn]
    return taken, failed


def _headline(facts: Mapping[str, Any], runs: int, *, is_quick: bool) -> str:
    quick = " (quick: sizes too small to judge by)" if is_quick else ""
    return (
        f"{facts['cpu']}, {facts['cores']} cores, {facts['kernel']}, Python {facts['python']}; "
        f"load {facts['load']:.1f} to {facts['load_at_end']:.1f}; medians of {runs}{quick}"
    )


def _name_of_ray(python: Path) -> str:
    code = "from importlib.metadata import version; print(version('ray'))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{python} has no Ray: run scripts/compare-ray without --ray-python")
    return f"Ray {done.stdout.strip()}"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="scripts/compare-ray", description=__doc__)
    made.add_argument("--only", nargs="+", choices=list(WORKS), metavar="WORK",
                      help=f"of {', '.join(WORKS)}")  # fmt: skip
    made.add_argument("--runs", type=int, metavar="N", help=f"turns of each ({_RUNS}; 1 if quick)")
    made.add_argument("--quick", action="store_true", help="small sizes: does it run at all?")
    made.add_argument("--json", type=Path, metavar="FILE", help="write all samples there")
    made.add_argument("--directory", type=Path, help="on the disk to measure, with 3 GB free")
    made.add_argument("--ray-python", type=Path, metavar="PYTHON", required=True,
                      help="a Python with Ray (scripts/compare-ray makes one)")  # fmt: skip
    return made
