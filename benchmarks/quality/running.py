"""Runs a contest: holdfast's side here, each peer's in its own Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import holdfast
from benchmarks.quality.contest import RANDOM, Contest
from benchmarks.quality.ours import Ours, run
from benchmarks.quality.results import OURS, Result, result_of
from benchmarks.tasks.catalogue import task as task_of
from benchmarks.tasks.task import Field

_PEER_SCRIPT = Path(__file__).resolve().parent.parent / "peers" / "run.py"
PEERS = ("ray", "optuna", "syne")
NAMES = {
    "ray": "Ray Tune", "optuna": "Optuna", "syne": "Syne Tune", "smac": "SMAC3", "hebo": "HEBO",
    "ax": "Ax", OURS: "holdfast",
}  # fmt: skip

Say = Callable[[str], object]


class Absent(Exception):
    """The algorithm, or the peer, is missing; the message says what."""


def python_of(peer: str) -> str | None:
    """The Python in HOLDFAST_RAY_PYTHON and similar variables, in whose environment the peer is
    installed."""
    return os.environ.get(f"HOLDFAST_{peer.upper()}_PYTHON") or None


def random_search() -> Contest:
    """Random search, with the same draws as in all other contests; every trial is trained to the
    end."""
    return Contest(name=RANDOM, ours=Ours, beats_random=False)


def run_ours(contest: Contest, task_name: str, seeds: int) -> Result:
    """The result of holdfast's side. Raises Absent."""
    try:
        ours = contest.ours()
        task = task_of(task_name)
        ours.scheduler(task), ours.search(task, 0)
    except (ImportError, AttributeError) as error:
        raise Absent(f"{contest.name}: {error}") from error
    began_s = time.monotonic()
    courses = [run(ours, task, seed, contest.field) for seed in range(seeds)]
    return result_of(
        OURS,
        contest.name,
        task,
        contest.field,
        courses,
        version=holdfast.__version__,
        took_s=time.monotonic() - began_s,
    )


def run_peer(
    peer: str, algorithm: str, tasks: Sequence[str], field: Field, seeds: int
) -> Iterator[Result]:
    """One result for each task, as they arrive. Raises Absent, subprocess.CalledProcessError."""
    common = {"algorithm": algorithm, "workers": field.workers, "trainings": field.trainings}
    runs = [{**common, "task": name, "seeds": list(range(seeds))} for name in tasks]
    version = ""
    for told in answers_of(peer, runs):
        version = told.get("version", version)
        if "courses" in told:
            yield _of_peer(peer, field, version, told)


def answers_of(side: str, runs: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """The answers of peers/run.py: the version, then one for each run, as they arrive. Raises
    Absent, subprocess.CalledProcessError."""
    python = sys.executable if side == OURS else python_of(side)
    if python is None:
        raise Absent(f"{NAMES[side]}: HOLDFAST_{side.upper()}_PYTHON is not set")
    command = [python, "-W", "ignore", str(_PEER_SCRIPT), side]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"runs": runs}))
        process.stdin.close()
        for line in process.stdout:
            yield json.loads(line)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)


def _of_peer(peer: str, field: Field, version: str, told: Mapping[str, Any]) -> Result:
    return result_of(
        peer,
        told["algorithm"],
        task_of(told["task"]),
        field,
        [[(at, value) for at, value in course] for course in told["courses"]],
        version=version,
        took_s=told["took_s"],
    )
