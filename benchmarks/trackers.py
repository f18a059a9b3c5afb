"""`report()` with trackers beside it, each alone, all together, and one whose server stalls.

The trackers live in an environment of their own: `scripts/venv trackers`.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure import REFERENCE, Bench, finish, script
from benchmarks.rows import Goal, Row

_PYTHON = Path(__file__).resolve().parents[1] / ".venvs" / "trackers" / "bin" / "python"
_HOME = "holdfast.air.integrations"
# What MLflow with SQLite takes on two cores; the others take more.
_RATE = 50
_UNHINDERED = Goal(of="ratio", bound=1.1)
# A courier of MLflow holds 200 MiB before it has anything to tell.
_MEMORY = Goal(of="ratio", bound=1.1)
_STALLED = "MLflow, its server stalled"
_DEADLINE_S = "2"

Told = dict[str, Any]


def measure(bench: Bench) -> list[Row]:
    if not _PYTHON.exists():
        note = "no trackers installed: scripts/venv trackers"
        return [Row(work="report() beside trackers", unit="ms", note=note)]
    with _stalled_server() as uri:
        runs = _contenders(bench, uri)
        samples = bench.interleaved(runs, warm=True)
        return [
            *_reports(samples, "p99", lambda taken: _part(taken, 99)),
            *_reports(samples, "median", median),
            _listed(samples[_STALLED]),
            _memory(bench, uri),
        ]


def _contenders(bench: Bench, stalled: str) -> Mapping[str, Callable[[], Told]]:
    kinds: dict[str, list[list[Any]]] = {
        "W&B offline": [[f"{_HOME}.wandb", "WandbLoggerCallback", {"mode": "offline"}]],
        "MLflow with SQLite": [[f"{_HOME}.mlflow", "MLflowLoggerCallback", {}]],
        "Comet offline": [[f"{_HOME}.comet", "CometLoggerCallback", {"online": False}]],
    }
    kinds["all three"] = [tracker for trackers in kinds.values() for tracker in trackers]
    kinds[_STALLED] = [_to(stalled)]
    kinds[REFERENCE] = []
    return {name: partial(_run, bench, kind) for name, kind in kinds.items()}


def _to(uri: str) -> list[Any]:
    return [f"{_HOME}.mlflow", "MLflowLoggerCallback", {"tracking_uri": uri}]


@contextmanager
def _stalled_server() -> Iterator[str]:
    """The kernel takes connections for it, and nobody ever answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def _run(
    bench: Bench, trackers: list[list[Any]], rate: int = _RATE, count: int | None = None
) -> Told:
    folder = bench.scratch()
    out, storage = folder / "told", folder / "storage"
    given = json.dumps(trackers)
    reports = count or bench.size(500, 20)
    finish(
        script("tracked_reports", storage, given, rate, reports, out, python=str(_PYTHON)),
        HOLDFAST_TRACKER_DEADLINE_S=_DEADLINE_S if "http://" in given else "60",
        MLFLOW_TRACKING_URI=f"sqlite:///{folder}/mlflow.db",
        MLFLOW_DISABLE_TELEMETRY="true",
        WANDB_ERROR_REPORTING="false",
        HOME=str(folder),
    )
    told: Told = json.loads(out.read_text())
    listed = list((storage / "run").glob("undelivered-*.json"))
    return {**told, "listed": [json.loads(path.read_text()) for path in listed]}


def _reports(
    samples: Mapping[str, list[Told]], shape: str, of: Callable[[list[float]], float]
) -> list[Row]:
    def shaped(name: str) -> list[float]:
        return [1000 * of(told["taken"]) for told in samples[name]]

    return [
        Row(
            work=f"report() at {_RATE}/s with {name}, {shape}",
            unit="ms",
            ours=shaped(name),
            reference=shaped(REFERENCE),
            beside="without trackers",
            goal=_UNHINDERED,
        )
        for name in samples
        if name != REFERENCE
    ]


def _part(taken: list[float], percent: int) -> float:
    return sorted(taken)[max(0, -(-percent * len(taken) // 100) - 1)]


def _listed(told: list[Told]) -> Row:
    """All of it was given up, so all of it must be in the list."""
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
    """Of the courier, at its largest: ten times as many rows wait in the journal."""
    few, many = bench.size(2_000, 20), bench.size(20_000, 200)

    def held(count: int) -> list[float]:
        told = [_run(bench, [_to(uri)], rate=5_000, count=count) for _ in range(bench.runs)]
        return [each["courier_kib"] / 1024 for each in told]

    return Row(
        work=f"memory of a courier with {many:,} rows that its server does not take",
        unit="MiB",
        ours=held(many),
        reference=held(few),
        beside=f"with {few:,}",
        goal=_MEMORY,
    )
