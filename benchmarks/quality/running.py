"""Runs a contest: holdfast's side here, each peer's in its own Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import holdfast
from benchmarks.quality.contest import RANDOM, Contest
from benchmarks.quality.ours import Ours, run
from benchmarks.quality.results import OURS, Result, result_of
from benchmarks.tasks.catalogue import task as task_of
from benchmarks.tasks.task import Field

_PEER_SCRIPT = Path(__file__).resolve().parent.parent / "peers" / "run.py"
PEERS = ("ray", "optuna", "syne")
NAMES = {"ray": "Ray Tune", "optuna": "Optuna", "syne": "Syne Tune", OURS: "holdfast"}

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
    python = python_of(peer)
    if python is None:
        raise Absent(f"{NAMES[peer]}: HOLDFAST_{peer.upper()}_PYTHON is not set")
    common = {"algorithm": algorithm, "workers": field.workers, "trainings": field.trainings}
    asked = {"runs": [{**common, "task": name, "seeds": list(range(seeds))} for name in tasks]}
    command = [python, "-W", "ignore", str(_PEER_SCRIPT), peer]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sys.stderr, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(asked))
        process.stdin.close()
        version = ""
        for line in process.stdout:
            told = json.loads(line)
            version = told.get("version", version)
            if "courses" in told:
                yield _of_peer(peer, field, version, told)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)


def _of_peer(peer: str, field: Field, version: str, told: Mapping[str, object]) -> Result:
    courses = told["courses"]
    assert isinstance(courses, list)
    return result_of(
        peer,
        str(told["algorithm"]),
        task_of(str(told["task"])),
        field,
        [[(at, value) for at, value in course] for course in courses],
        version=version,
        took_s=float(str(told["took_s"])),
    )
