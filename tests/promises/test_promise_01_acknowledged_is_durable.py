"""Promise 1. When `report()` returns, its row is in the journal on local disk: no death of any
process loses it. A power cut loses at most `fsync_period_s`."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast.experiment.records.journal_writer import JournalWriter
from holdfast.syncer.journal import journal as journals
from holdfast.syncer.journal.journal import Journal
from tests.rig import checker
from tests.rig.bench import Bench
from tests.rig.free_tasks import free_tasks
from tests.rig.script import acknowledged

FAST = """
import sys
from holdfast import tune
from tests.rig.script import mark, note

def train(config):
    trial = tune.get_context().get_trial_id()
    for iteration in range(1, 1_000_000):
        tune.report({"value": iteration})
        note(what="acknowledged", trial=trial, attempt=1, iteration=iteration, checkpoint=False)
        if iteration == 200:
            mark("reported many")

if __name__ == "__main__":
    tune.Tuner(train, param_space={"n": tune.grid_search([1, 2])}, run_config=tune.RunConfig(
        storage_path=sys.argv[1], name="run", verbose=0)).fit()
"""


@pytest.mark.process
@pytest.mark.parametrize("victims", ["script", "everything"])
def test_no_acknowledged_row_is_missing_after_a_kill_in_full_flight(
    bench: Bench, victims: str
) -> None:
    script = bench.run(bench.write(FAST), str(bench.storage))
    script.wait_for("reported many")
    for process in script.processes():
        if victims == "everything" or process.role == "script":
            process.kill()
    assert script.left() == []
    found = checker.fold(bench.root)
    assert len(acknowledged(bench.notes())) >= 200
    assert list(checker.unkept(found, bench.notes())) == []


class DeafScribe:
    """Replaces the projector, which is not tested here."""

    def send(self, message: list[Any]) -> None: ...


def test_a_row_appended_during_a_slow_sync_is_synced_without_waiting_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial's next report may be hours away: only the clock may trigger the sync."""
    began, go_on, second = threading.Event(), threading.Event(), threading.Event()
    syncs: list[int] = []

    def slow(fd: int) -> None:
        syncs.append(fd)
        began.set()
        if len(syncs) > 1:
            second.set()
        go_on.wait(10)

    monkeypatch.setattr(journals, "fdatasync_file", slow)

    async def run() -> bool:
        loop = asyncio.get_running_loop()
        journal_writer = JournalWriter(
            Journal(tmp_path / "journal"),
            DeafScribe(),  # type: ignore[arg-type]
            tasks=free_tasks(),
            fsync_period_s=0.01,
        )
        journal_writer.append([b"first"])
        await loop.run_in_executor(None, began.wait, 10)
        due = loop.create_future()
        journal_writer.append([b"during the sync"])
        # The timer of this append comes due while the first sync is still under way.
        loop.call_later(0.05, due.set_result, None)
        await due
        go_on.set()
        return await loop.run_in_executor(None, second.wait, 10)

    assert asyncio.run(run())


def test_what_waits_for_the_disk_is_done_though_nothing_more_is_appended(tmp_path: Path) -> None:
    async def run() -> None:
        journal_writer = JournalWriter(
            Journal(tmp_path / "journal"),
            DeafScribe(),  # type: ignore[arg-type]
            tasks=free_tasks(),
            fsync_period_s=0.01,
        )
        journal_writer.append([b"row"])
        await journal_writer.sync()
        durable = asyncio.Event()
        journal_writer.when_durable(durable.set)
        async with asyncio.timeout(10):
            await durable.wait()

    asyncio.run(run())
