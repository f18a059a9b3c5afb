"""From the start of a trial's function to its first report, with libraries that import lazily.

The first trial imports; the tenth should take what the same work takes in a bare fork of a process
that has everything loaded. Libraries without an environment (`scripts/venv NAME`) are left out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.measure import REFERENCE, Bench, finish, script
from benchmarks.rows import Row

_TRIALS = 10
_ORDINALS = {3: "3rd", _TRIALS: "10th"}
_OFF = "off"
# The environment of each library.
_LIBRARIES = {
    "torch": "dev",
    "sklearn": "dev",
    "pandas": "dev",
    "xgboost": "xgboost",
    "lightning": "lightning",
    "transformers": "transformers",
    "tensorflow": "tensorflow",
}
_BARE = "bare fork, everything loaded"
# As holdfast starts a trial with one CPU.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1"}
# For each trial or fork: seconds, and modules imported.
Sample = list[tuple[float, int]]


def measure(bench: Bench) -> list[Row]:
    libraries = [(name, python) for name in _LIBRARIES if (python := _python(name))]
    return [
        row
        for name, python in libraries[: bench.size(99, 1)]
        for row in _rows(bench, name, python)
    ]


def _python(library: str) -> str | None:
    environment = _LIBRARIES[library]
    if environment == "dev":
        return sys.executable
    python = Path(__file__).resolve().parents[2] / ".venvs" / environment / "bin" / "python"
    return str(python) if python.exists() else None


def _rows(bench: Bench, library: str, python: str) -> list[Row]:
    trials = bench.size(_TRIALS, 3)
    places = ("top", "inside")
    contenders: dict[str, Callable[[], Sample]] = {
        REFERENCE: partial(_forks, library, trials, python),
        **{place: partial(_trials, bench, library, place, trials, python) for place in places},
        _OFF: partial(_trials, bench, library, "top", 2, python, HOLDFAST_PRELOAD="0"),
    }
    samples = bench.interleaved(contenders)
    bare = [median(seconds for seconds, _ in told) for told in samples[REFERENCE]]
    rows = []
    for place in places:
        for name, at in (("first", 0), (_ORDINALS[trials], -1)):
            told = [sample[at] for sample in samples[place]]
            modules = round(median(imported for _, imported in told))
            work = f"{library} imported {_where(place)}, {name} trial: {modules:,} modules"
            rows.append(_row(work, told, bare))
    off = [sample[-1] for sample in samples[_OFF]]
    rows.append(_row(f"{library} imported {_where('top')}, with HOLDFAST_PRELOAD=0", off, bare))
    return rows


def _where(place: str) -> str:
    return "by the script" if place == "top" else "in the trial"


def _row(work: str, told: Sample, bare: list[float]) -> Row:
    return Row(
        work=work,
        unit="s",
        ours=[seconds for seconds, _ in told],
        reference=bare,
        reference_name=_BARE,
    )


def _trials(
    bench: Bench, library: str, place: str, trials: int, python: str, **environ: str
) -> Sample:
    storage = bench.scratch()
    command = script("runs/first_reports", library, place, trials, storage, python=python)
    told: Sample = finish(command, **environ).told
    return told


def _forks(library: str, count: int, python: str) -> Sample:
    command = script("runs/bare_first_reports", library, count, python=python)
    told: Sample = finish(command, **_ONE_THREAD).told
    return told
