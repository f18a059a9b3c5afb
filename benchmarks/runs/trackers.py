"""`report()` with trackers: each alone, all together, and one whose server stalls.

The trackers are in their own environment: `scripts/venv trackers`. The rate of the reports is half
of what the slowest tracker takes in its own run, so that all can keep up. Each turn includes the
run without trackers. The measurement begins when the tracker processes have imported their
libraries and passed on the first row.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure import REFERENCE, Bench, finish, script
from benchmarks.rows import Goal, Row

_PYTHON = Path(__file__).resolve().parents[2] / ".venvs" / "trackers" / "bin" / "python"
_HOME = "holdfast.air.integrations"
_W_AND_B = [f"{_HOME}.wandb", "WandbLoggerCallback", {"mode": "offline"}]
_COMET = [f"{_HOME}.comet", "CometLoggerCallback", {"online": False}]
_ALL = "all three"
_STALLED = "MLflow, its server stalled"
_UNHINDERED = Goal(of="ratio", bound=1.1)
# MLflow's tracker process uses 200 MiB before the first row.
_MEMORY = Goal(of="ratio", bound=1.1)
# A tracker that keeps up has little left to do; W&B and Comet still close their files.
_KEEPS_UP = Goal(of="ours", bound=5.0)
_DEADLINE_S = "1"
# For a p99 of eight reports.
_REPORTS = 800
_FLOOD = 2_000
# On a machine under other load, tracker processes get little CPU: then they do not keep up, and
# the figures show it.
_LEAST_RATE = 100
_MEMORY_RUNS = 2

Tracker = list[Any]
Told = dict[str, Any]


def measure(bench: Bench) -> list[Row]:
    if not _PYTHON.exists():
        note = "no trackers installed: scripts/venv trackers"
        return [Row(work="report() with trackers", unit="ms", note=note)]
    with _stalled_server() as uri:
        kinds = _kinds()
        capacity = {} if bench.quick else {name: _capacity(bench, name, kinds) for name in kinds}
        rate = max(_LEAST_RATE, int(min(capacity.values()) / 2)) if capacity else _LEAST_RATE
        samples = bench.interleaved(_contenders(bench, kinds, uri, rate))
        return [
            *_capacities(capacity),
            *_reports(samples, rate, "p99", lambda taken: _part(taken, 99)),
            *_reports(samples, rate, "median", median),
            *_endings(samples, rate, list(kinds)),
            _listed(samples[_STALLED]),
            _memory(bench, uri),
        ]


def _kinds() -> dict[str, list[Tracker]]:
    mlflow = _mlflow()
    return {
        "W&B offline": [_W_AND_B],
        "MLflow with SQLite": [mlflow],
        "Comet offline": [_COMET],
        _ALL: [_W_AND_B, mlflow, _COMET],
    }


def _mlflow(**given: str) -> Tracker:
    return [f"{_HOME}.mlflow", "MLflowLoggerCallback", given]


def _capacity(bench: Bench, name: str, kinds: Mapping[str, list[Tracker]]) -> float:
    """Rows per second that it takes if they come faster than that."""
    bench.say(f"  rows per second of {name} ...")
    told = _run(bench, kinds[name], rate=0, count=_FLOOD)
    took_s: float = told["ended_s"] - told["begun_s"] + told["ending_s"]
    return _FLOOD / took_s


def _contenders(
    bench: Bench, kinds: Mapping[str, list[Tracker]], stalled: str, rate: int
) -> dict[str, Callable[[], Told]]:
    count = bench.size(_REPORTS, 100)

    def run(name: str, trackers: list[Tracker]) -> Told:
        bench.say(f"  {count} reports at {rate}/s: {name} ...")
        return _run(bench, trackers, rate, count)

    # The run without trackers comes between the others, because they may disturb what follows
    # them.
    contenders = {
        **kinds,
        REFERENCE: [],
        _STALLED: [_mlflow(tracking_uri=stalled)],
    }
    return {name: partial(run, name, trackers) for name, trackers in contenders.items()}


@contextmanager
def _stalled_server() -> Iterator[str]:
    """The kernel accepts connections, but no one answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def _run(bench: Bench, trackers: Sequence[Tracker], rate: int, count: int) -> Told:
    folder = bench.scratch()
    out, storage = folder / "told", folder / "storage"
    given = json.dumps(trackers)
    finish(
        script("runs/tracked_reports", storage, given, rate, count, out, python=str(_PYTHON)),
        HOLDFAST_TRACKER_DEADLINE_S=_DEADLINE_S if "http://" in given else "120",
        MLFLOW_TRACKING_URI=f"sqlite:///{folder}/mlflow.db",
        MLFLOW_DISABLE_TELEMETRY="true",
        WANDB_ERROR_REPORTING="false",
        HOME=str(folder),
    )
    told: Told = json.loads(out.read_text())
    listed = list((storage / "run").glob("undelivered-*.json"))
    return {**told, "listed": [json.loads(path.read_text()) for path in listed]}


def _capacities(capacity: Mapping[str, float]) -> list[Row]:
    return [
        Row(work=f"rows that {name} takes", unit="/s", ours=[rate])
        for name, rate in capacity.items()
    ]


def _reports(
    samples: Mapping[str, list[Told]], rate: int, shape: str, of: Callable[[list[float]], float]
) -> list[Row]:
    def shaped(name: str) -> list[float]:
        return [1000 * of(told["taken"]) for told in samples[name]]

    return [
        Row(
            work=f"report() at {rate}/s with {name}, {shape}",
            unit="ms",
            ours=shaped(name),
            reference=shaped(REFERENCE),
            reference_name="without trackers",
            goal=_UNHINDERED,
        )
        for name in samples
        if name != REFERENCE
    ]


def _part(taken: list[float], percent: int) -> float:
    return sorted(taken)[max(0, -(-percent * len(taken) // 100) - 1)]


def _endings(samples: Mapping[str, list[Told]], rate: int, kinds: Sequence[str]) -> list[Row]:
    return [
        Row(
            work=f"fit() ends so long after the last of the reports at {rate}/s with {name}",
            unit="s",
            ours=[told["ending_s"] for told in samples[name]],
            reference=[told["ending_s"] for told in samples[REFERENCE]],
            reference_name="without trackers",
            goal=_KEEPS_UP,
        )
        for name in kinds
    ]


def _listed(told: list[Told]) -> Row:
    """All rows were given up, so all must be in the list."""
    shares = []
    for each in told:
        (file,) = each["listed"]
        (trial,) = file["undelivered"]
        first, _, last = trial["iterations"][0].partition("-")
        shares.append(100 * (int(last) - int(first) + 1) / (len(each["taken"]) + 1))
    return Row(
        work="rows that a stalled server did not take, listed at exit",
        unit="%",
        ours=shares,
        goal=Goal(of="ours", bound=100, at_least=True),
    )


def _memory(bench: Bench, uri: str) -> Row:
    """The largest memory of the tracker process, with ten times as many rows waiting in the
    journal."""
    few, many = bench.size(2_000, 20), bench.size(20_000, 200)
    trackers = [_mlflow(tracking_uri=uri)]

    def held(count: int) -> list[float]:
        bench.say(f"  {count:,} rows wait for a server that stalls ...")
        told = [
            _run(bench, trackers, rate=0, count=count)
            for _ in range(min(bench.runs, _MEMORY_RUNS))
        ]
        return [each["tracker_process_kib"] / 1024 for each in told]

    return Row(
        work=f"memory of a tracker process with {many:,} rows that its server does not take",
        unit="MiB",
        ours=held(many),
        reference=held(few),
        reference_name=f"with {few:,}",
        goal=_MEMORY,
    )
