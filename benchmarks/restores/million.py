"""An experiment of a million rows: read from outside, and published.

Its journal is written with holdfast's own encoder, without a machine, in half a minute.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import cast

from benchmarks.measure import MIB, OURS, Bench, environment
from benchmarks.rows import Goal, Row
from holdfast.experiment.folder.layout import JOURNAL, SNAPSHOT_PREFIX, Layout
from holdfast.experiment.records.journal import pack
from holdfast.experiment.records.recovery import Fold
from holdfast.experiment.records.snapshots import Snapshot, write_snapshot
from holdfast.scheduler.events import Begun, Event, Exited, ExperimentSpec, SearchEnded, Suggested
from holdfast.scheduler.machine import Machine
from holdfast.syncer.artifacts.settings import UploaderSettings
from holdfast.syncer.journal.journal import Journal
from holdfast.syncer.journal.segment import Position
from holdfast.syncer.stores.location import Location
from holdfast.syncer.uploader.uploader import Uploader
from holdfast.trial.events import Reported, Returned, Started
from holdfast.trial.trial import TrialSpec
from tests.rig.storage.stores import FaultyStore, MemoryStore, Place

Costs = tuple[list[float], list[float], list[float]]

_BEGAN = 1_700_000_000.0
_BATCH = 1_000
_COMMANDS: Mapping[str, tuple[str, ...]] = {
    "ls": ("ls",),
    "show": ("show",),
    "best": ("best", "--metric", "loss", "--mode", "min"),
}
_LONGEST_S: Mapping[str, float] = {"ls": 1.0, "show": 2.0, "best": 1.0}


def write_experiment(root: Path, *, trials: int, rows: int) -> None:
    """Write the journal of a finished experiment with this many trials and rows each."""
    journal = Journal(Layout(root).journal)
    batch: list[bytes] = []
    for at, event in enumerate(_events(trials, rows)):
        batch.append(pack(event, _BEGAN + at / 1_000))
        if len(batch) == _BATCH:
            journal.append(batch)
            batch.clear()
            journal.forced(journal.position)
    journal.append(batch)
    journal.close()


def _events(trials: int, rows: int) -> Iterator[Event]:
    spec = ExperimentSpec(
        experiment_id="million", run="d2a66", trainable="train", seed=0, metric="loss", mode="min"
    )
    yield Begun(spec=spec, capacity={"CPU": 8}, boot_id="boot")
    for number in range(trials):
        trial_id = f"d2a66_{number:05d}"
        name = f"train_{trial_id}"
        yield Suggested(
            spec=TrialSpec(
                trial_id=trial_id,
                index=number,
                name=name,
                dirname=f"{name}_{number}_lr=0.1_2026-11-20_22-57-57",
                config={"lr": number / trials, "width": 64},
                tag=str(number),
            )
        )
        yield Started(trial_id=trial_id, attempt=1, pid=1000, hostname="host", node_ip="127.0.0.1")
        for row in range(1, rows + 1):
            yield Reported(
                trial_id=trial_id,
                attempt=1,
                iteration=row,
                metrics={"loss": (number + 1) / row, "acc": 0.25},
                timestamp=_BEGAN + row,
                time_this_iter_s=0.5,
                time_total_s=0.5 * row,
                checkpoint=None,
            )
        yield Returned(trial_id=trial_id, attempt=1)
        yield Exited(trial_id=trial_id, attempt=1, cause="ended")
    yield SearchEnded()


def write_final_snapshot(root: Path) -> float:
    """Write a snapshot as the projector does at the end; return how long the fold took, in
    seconds."""
    layout = Layout(root)
    began = time.monotonic()
    fold = Fold(Machine(), Position())
    for _ in fold.run(layout.journal, None):
        pass
    took_s = time.monotonic() - began
    write_snapshot(
        layout,
        Snapshot(machine=fold.machine, last=fold.last, begun_at=fold.begun_at, boot_id="boot"),
    )
    return took_s


def measure(bench: Bench) -> list[Row]:
    return [*_looked_at(bench), *_published(bench)]


def _looked_at(bench: Bench) -> list[Row]:
    trials, rows = bench.size(10_000, 60), bench.size(100, 10)
    root = bench.scratch() / "million"
    write_experiment(root, trials=trials, rows=rows)
    size_mib = sum(path.stat().st_size for path in (root / JOURNAL).iterdir()) / MIB
    fold_s = write_final_snapshot(root)
    what = f"{trials * rows:,} rows of {trials:,} trials"
    found = [
        Row(work=f"fold of {what} ({size_mib:.0f} MiB of journal)", unit="s", ours=[fold_s]),
        *_commands(bench, root, what, is_bound=True),
    ]
    for path in root.glob(f"{SNAPSHOT_PREFIX}*"):
        path.unlink()
    return [*found, *_commands(bench, root, f"{what}, without a snapshot", is_bound=False)]


def _commands(bench: Bench, root: Path, what: str, *, is_bound: bool) -> list[Row]:
    found = []
    for name, command in _COMMANDS.items():
        samples = bench.interleaved({OURS: partial(_run, (*command, str(root)))})[OURS]
        found += [
            Row(
                work=f"holdfast {name}, {what}",
                unit="s",
                ours=[taken[0] for taken in samples],
                goal=Goal(of="ours", bound=_LONGEST_S[name]) if is_bound else None,
            ),
            Row(
                work=f"CPU of holdfast {name}, {what}",
                unit="s",
                ours=[taken[2] for taken in samples],
            ),
            Row(
                work=f"memory of holdfast {name}, {what}",
                unit="MiB",
                ours=[taken[1] for taken in samples],
                goal=Goal(of="ours", bound=150.0) if is_bound else None,
            ),
        ]
    return found


def _run(arguments: tuple[str, ...]) -> tuple[float, float, float]:
    """Seconds, MiB and CPU seconds of the command."""
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", *arguments],
        env=environment(),
        stdout=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"holdfast {' '.join(arguments)} exited with {process.returncode}")
    scale = 1 if sys.platform == "darwin" else 1024
    cpu_s = usage.ru_utime + usage.ru_stime
    return time.monotonic() - began, usage.ru_maxrss * scale / MIB, cpu_s


def _published(bench: Bench) -> list[Row]:
    """One more publication after this many: its requests, and its time."""
    most = bench.size(5_000, 200)
    costs = asyncio.run(_publications(bench.scratch(), most))
    found = []
    for before in (most // 100, most // 10, most):
        taken_s, operations, head_bytes = costs[before - 1]
        work = f"publication number {before:,}"
        found += [
            Row(work=f"{work}, storage in memory", unit="s", ours=taken_s),
            Row(work=f"{work}: requests", unit="", ours=operations),
            Row(work=f"{work}: size of the head", unit="B", ours=head_bytes),
        ]
    return found


async def _publications(folder: Path, count: int) -> list[Costs]:
    store = FaultyStore(MemoryStore())
    journal = Journal(folder / JOURNAL)
    settings = UploaderSettings(
        root=folder,
        storage=cast(Location, Place(store)),
        experiment_id="an experiment",
        journal=JOURNAL,
        head="head.json",
        is_record=lambda key: False,
        is_checkpoint=lambda name: False,
        private=(JOURNAL,),
    )

    uploader = Uploader(settings, lambda answer: None)
    await uploader.open()
    costs: list[tuple[float, int, int]] = []
    for _ in range(count):
        journal.append([b"a row of some bytes " * 20] * 5)
        before, began = len(store.log), time.monotonic()
        await uploader.publish(journal.position, 0)
        await uploader.remove_stored([])
        head = cast(MemoryStore, store.inner).objects["head.json"]
        costs.append((time.monotonic() - began, len(store.log) - before, len(head)))
    journal.close()
    await uploader.close()
    return [_last(costs[max(0, at - 9) : at + 1]) for at in range(count)]


def _last(costs: list[tuple[float, int, int]]) -> Costs:
    """The costs of several publications: seconds, requests, and bytes of the head."""
    return (
        [cost[0] for cost in costs],
        [float(cost[1]) for cost in costs],
        [float(cost[2]) for cost in costs],
    )
