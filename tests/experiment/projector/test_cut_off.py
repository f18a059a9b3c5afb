"""A projector that is killed in the middle of a long journal: the next one continues there."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.experiment.control.services import lacking
from holdfast.experiment.folder.layout import RESULTS, Layout
from holdfast.experiment.projector import projector as projectors
from holdfast.experiment.projector.projector import Projector, ProjectorSettings
from holdfast.experiment.projector.trial_files import TrialFiles
from holdfast.experiment.records.journal_writer import JournalWriter
from holdfast.runtime.service import RestartingService
from holdfast.scheduler.events import Resumed
from holdfast.syncer.journal.journal import Journal
from holdfast.trial.config import FailureConfig, ResumeType
from holdfast.trial.trial import TrialSpec
from tests.rig.free_tasks import free_tasks
from tests.rig.runs.recorded import RecordedExperiment

pytestmark = pytest.mark.anyio
TRIALS = 24


class CutOff(Exception):
    """The projector was killed."""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordedExperiment]:
    """Many trials; some failed and were resumed after the others had ended."""
    monkeypatch.setattr(projectors, "_FLUSH_BYTES", 4_000)
    recorded = RecordedExperiment(tmp_path / "exp", failure=FailureConfig(max_failures=0))
    failed = []
    for number in range(TRIALS):
        trial = recorded.begin({"number": number})
        for step in range(8):
            recorded.report(trial, {"loss": step, "text": "x" * 50})
        if number % 10 == 3:
            recorded.fail(trial)
            failed.append(trial)
        else:
            recorded.finish(trial)
    recorded.add(Resumed(epoch=2, capacity={"CPU": 2}, errored=ResumeType.RESUME))
    for trial in failed:
        recorded.start(trial)
        recorded.report(trial, {"loss": 99, "text": "again"})
        recorded.finish(trial)
    yield recorded
    recorded.close()


def projector(run: RecordedExperiment, *, cut_at: int = 0, boot: str = "one") -> Projector:
    """A projector that takes a snapshot at each pause, and is killed at its `cut_at`-th pause."""
    pauses = [0]

    def progress(done: int, total: int) -> None:
        assert 0 < done <= total
        pauses[0] += 1
        if pauses[0] == cut_at:
            raise CutOff

    settings = ProjectorSettings(tensorboard=False, snapshot_period_s=0.0)
    return Projector(run.layout, settings, lambda: 0.0, boot=boot, progress=progress)


def contents(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.glob("train_*/*"))
        if path.is_file()
    }


def expected(run: RecordedExperiment, tmp_path: Path) -> dict[str, bytes]:
    clean = Layout(tmp_path / "clean")
    shutil.copytree(run.layout.journal, clean.journal)
    Projector(clean, ProjectorSettings(tensorboard=False), lambda: 0.0, boot="one").catch_up()
    return contents(clean.root)


@pytest.fixture
def created(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The trials whose files are begun, in order."""
    made: list[str] = []
    create = TrialFiles.create

    def note(self: TrialFiles, spec: TrialSpec, *, anew: bool = False) -> None:
        made.append(spec.trial_id)
        create(self, spec, anew=anew)

    monkeypatch.setattr(TrialFiles, "create", note)
    return made


def test_each_projector_continues_where_the_one_before_was_cut_off(
    run: RecordedExperiment, tmp_path: Path, created: list[str]
) -> None:
    """Each is killed at its third pause: one that started again would never finish."""
    begun = []
    for _ in range(TRIALS):
        created.clear()
        try:
            projector(run, cut_at=3).catch_up()
            break
        except CutOff:
            begun.append(len(created))
    assert len(begun) > 3
    one = projector(run)
    one.catch_up()
    one.snapshot()
    assert contents(run.layout.root) == expected(run, tmp_path)


def test_after_a_start_of_the_system_all_files_are_written_once_and_not_again_and_again(
    run: RecordedExperiment, tmp_path: Path, created: list[str]
) -> None:
    """An older snapshot exists, and no older file can be relied on."""
    before = projector(run, boot="before")
    before.catch_up()
    before.snapshot()
    for path in run.layout.root.glob(f"train_*/{RESULTS}"):
        path.write_bytes(bytes(4))
    created.clear()
    with pytest.raises(CutOff):
        projector(run, cut_at=9).catch_up()
    assert len(created) > 5
    first = len(created)
    created.clear()
    projector(run).catch_up()
    assert len(set(created)) < TRIALS
    assert first + len(set(created)) <= TRIALS + 12
    assert contents(run.layout.root) == expected(run, tmp_path)


class Service:
    """A projector's process, as the journal writer sees it; there is none of this number."""

    pid = 2**30

    def __init__(self) -> None:
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.sent: list[Any] = []
        self.closing = asyncio.Event()
        self.killed = False
        # What it has used at each look; then no more.
        self.cpu_times_s = [0.0]

    @property
    def cpu_time_s(self) -> float:
        return self.cpu_times_s.pop(0) if len(self.cpu_times_s) > 1 else self.cpu_times_s[0]

    def send(self, message: list[Any]) -> None:
        self.sent.append(message)
        if message == ["close"]:
            self.closing.set()

    def kill(self) -> None:
        self.killed = True

    async def close(self, *, has_finished: bool) -> None:
        """It has ended."""


@pytest.fixture
async def service() -> Service:
    return Service()


@pytest.fixture
async def journal_writer(tmp_path: Path, service: Service) -> JournalWriter:
    journal = Journal(tmp_path / "journal")
    projector = cast(RestartingService, service)
    return JournalWriter(journal, projector, tasks=free_tasks(), fsync_period_s=1.0)


async def test_the_end_waits_as_long_as_the_projector_comes_further(
    journal_writer: JournalWriter, service: Service
) -> None:
    told: list[tuple[int, int]] = []
    ending = asyncio.ensure_future(journal_writer.finish(30.0, lambda *share: told.append(share)))
    await service.closing.wait()
    for done in range(5):
        journal_writer.on_projector(["progress", done, 100])
        await asyncio.sleep(0)
    journal_writer.on_projector(["done", True])
    assert await ending
    assert told == [(done, 100) for done in range(5)]
    assert not service.killed
    await journal_writer.close()


async def test_a_projector_that_makes_no_progress_is_not_waited_for(
    journal_writer: JournalWriter, service: Service
) -> None:
    assert not await journal_writer.finish(0.01)
    assert service.killed
    await journal_writer.close()


@pytest.mark.parametrize("is_patient", [True, False])
async def test_a_projector_that_has_little_of_a_busy_machine_is_waited_for(
    journal_writer: JournalWriter, service: Service, is_patient: bool
) -> None:
    service.cpu_times_s = [0.0, 0.1, 0.2, 0.3]
    assert not await journal_writer.finish(0.01, is_patient=is_patient)
    assert service.killed
    assert len(service.cpu_times_s) == (1 if is_patient else 2)
    await journal_writer.close()


def test_trials_whose_rows_are_missing_are_named(run: RecordedExperiment) -> None:
    projector(run).catch_up()
    trials = run.machine.trials.values()
    assert lacking(run.layout, trials) == ""
    missing, behind, *_ = trials
    (run.layout.trial(missing.spec) / RESULTS).unlink()
    cut = run.layout.trial(behind.spec) / RESULTS
    cut.write_bytes(b"".join(cut.read_bytes().splitlines(keepends=True)[:-1]))
    told = lacking(run.layout, trials)
    assert "2 trials are missing or incomplete" in told
    assert missing.spec.dirname in told
    assert behind.spec.dirname in told
    assert "doctor repair" in told
