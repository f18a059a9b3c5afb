"""The controller's side of the uploader, with an uploader that records its orders."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.experiment.progress.summary import StorageAge, UploadProgress
from holdfast.experiment.records.journal_writer import JournalWriter
from holdfast.experiment.uploads.checkpoint_table import BACKLOG
from holdfast.experiment.uploads.uploads import Uploads
from holdfast.runtime.service import RestartingService
from holdfast.scheduler.events import Event
from holdfast.syncer.journal import journal as journals
from holdfast.syncer.journal.journal import Journal, Position
from holdfast.trial.config import SyncConfig
from holdfast.trial.events import Committed
from holdfast.trial.trial import CheckpointRecord, CheckpointUploadMode, Trial, TrialSpec
from tests.rig.free_tasks import free_tasks

pytestmark = pytest.mark.anyio


RECORD = CheckpointRecord(index=0, iteration=1, attempt=1, files=1, size_bytes=1)


def spec_of(number: int) -> TrialSpec:
    folder = f"folder-{number}"
    return TrialSpec(trial_id=f"t{number}", index=number, name="", dirname=folder, config={})


class FakeKeeper:
    def __init__(self) -> None:
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.sent: list[Any] = []

    def send(self, message: list[Any]) -> None:
        self.sent.append(message)

    async def close(self, *, has_finished: bool = False) -> None:
        """A connection without a process."""


class FakeLedger:
    """A journal that is durable at once; each rotation seals a segment."""

    def __init__(self) -> None:
        self.reads = 0

    @property
    def position(self) -> Position:
        """Each read finds one more record."""
        self.reads += 1
        return Position(0, 100 * self.reads)

    def when_durable(self, act: Callable[[], None]) -> None:
        act()

    async def sync(self) -> None:
        """Nothing waits for it."""


class Desk:
    def __init__(
        self,
        *,
        is_remote: bool = False,
        sync_period_s: float = 300.0,
        journal_writer: JournalWriter | None = None,
        artifacts: bool = False,
    ) -> None:
        self.uploader = FakeKeeper()
        self.journal_writer = journal_writer or FakeLedger()
        self.events: list[Event] = []
        self.lost: list[tuple[str, int, str]] = []
        self.warned: list[tuple[str, str]] = []
        self.uploads = Uploads(
            cast(RestartingService, self.uploader),
            cast(JournalWriter, self.journal_writer),
            host=self,
            sync=SyncConfig(sync_period=sync_period_s, sync_artifacts=artifacts),
            begins=0,
            is_remote=is_remote,
        )

    def post(self, event: Event) -> None:
        self.events.append(event)

    def warn(self, text: str, level: str = "warning") -> None:
        self.warned.append((level, text))

    def lose(self, trial_id: str, index: int, reason: str) -> None:
        self.lost.append((trial_id, index, reason))

    def lose_ownership(self, text: str) -> None:
        """No other incarnation is there."""

    def commit(self, number: int) -> None:
        self.uploads.commit(spec_of(number), RECORD)

    def sent(self, order: str) -> list[Any]:
        return [message[1] for message in self.uploader.sent if message[0] == order]

    def supersede(self, number: int, how: str) -> None:
        """As the controller does it: in a run, or when another incarnation starts."""
        if how == "discard":
            self.uploads.discard(spec_of(number), RECORD)
        else:
            self.uploads.discard_superseded(Trial(spec=spec_of(number), next_checkpoint=2), {1})

    @property
    def publications(self) -> int:
        return sum(order[0] == "publish" for order in self.uploader.sent)


class BadDisk:
    """A journal's disk that refuses the first fsyncs. `asked` has the value of `count` at each of
    them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *, refusals: int) -> None:
        self.journal_writer = JournalWriter(
            Journal(folder / "journal"),
            cast(RestartingService, FakeKeeper()),
            tasks=free_tasks(),
            fsync_period_s=3600,
        )
        self.asked: list[int] = []
        self.count: Callable[[], int] = lambda: 0
        self._refusals = refusals
        monkeypatch.setattr(journals, "fdatasync_file", self._force)

    def _force(self, descriptor: int) -> None:
        self.asked.append(self.count())
        if len(self.asked) <= self._refusals:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        os.fsync(descriptor)


class Clock(asyncio.SelectorEventLoop):
    """A loop with a clock that a test advances."""

    now_s = 0.0

    def time(self) -> float:
        return self.now_s

    async def pass_s(self, seconds: float) -> None:
        self.now_s += seconds
        for _ in range(3):
            await asyncio.sleep(0)


def timed(test: Callable[[Clock], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test with its own clock."""

    def run() -> None:
        with asyncio.Runner(loop_factory=Clock) as runner:
            runner.run(test(cast(Clock, runner.get_loop())))

    return run


@timed
async def test_records_are_published_each_period(clock: Clock) -> None:
    desk = Desk(is_remote=True, sync_period_s=300)
    for count in range(3):
        await clock.pass_s(299)
        assert desk.publications == count
        await clock.pass_s(1)
        assert desk.publications == count + 1


@timed
async def test_records_are_published_soon_after_commits_and_once_for_all(clock: Clock) -> None:
    desk = Desk(is_remote=True, sync_period_s=300)
    await clock.pass_s(100)
    for number in range(3):
        desk.commit(number)
        desk.uploads.on_answer(["committed", f"t{number}", 0])
        await clock.pass_s(4)
    assert desk.publications == 1
    # The period counts from there.
    await clock.pass_s(299)
    assert desk.publications == 1
    await clock.pass_s(1)
    assert desk.publications == 2


@timed
async def test_a_commit_does_not_put_off_a_publication_that_is_due(clock: Clock) -> None:
    desk = Desk(is_remote=True, sync_period_s=5)
    await clock.pass_s(4)
    desk.commit(0)
    desk.uploads.on_answer(["committed", "t0", 0])
    await clock.pass_s(1)
    assert desk.publications == 1


@timed
async def test_artifacts_go_each_period_at_the_end_and_with_a_checkpoint(clock: Clock) -> None:
    desk = Desk(is_remote=True, sync_period_s=300, artifacts=True)
    desk.uploads.publish()
    assert desk.sent("send_files") == [None]
    await clock.pass_s(295)
    desk.commit(0)
    desk.uploads.on_answer(["committed", "t0", 0])
    await clock.pass_s(5)  # the turn of all comes first, and takes this trial along
    assert desk.sent("send_files") == [None, None]
    desk.commit(1)
    desk.uploads.on_answer(["committed", "t1", 0])
    await clock.pass_s(10)
    assert desk.sent("send_files") == [None, None, ["folder-1"]]
    await clock.pass_s(289)
    assert desk.publications == 3
    await clock.pass_s(1)
    assert desk.sent("send_files")[3:] == [None]
    desk.uploads.publish()
    assert desk.sent("send_files")[4:] == [None]


@timed
async def test_artifacts_that_are_off_are_never_sent(clock: Clock) -> None:
    desk = Desk(is_remote=True, sync_period_s=5)
    desk.commit(0)
    desk.uploads.on_answer(["committed", "t0", 0])
    await clock.pass_s(600)
    desk.uploads.publish()
    desk.uploads.resend_state()
    assert desk.sent("send_files") == []


@timed
async def test_a_uploader_that_took_the_place_of_another_looks_at_all_artifacts(
    clock: Clock,
) -> None:
    desk = Desk(is_remote=True, artifacts=True)
    desk.uploads.on_answer(["progress", 10, 500, 1000, 5000])
    age = desk.uploads.age(time.time())
    assert age is not None
    assert age.upload == UploadProgress(
        name="10 of 500 artifacts", done_bytes=1000, total_bytes=5000
    )
    desk.uploads.resend_state()
    assert desk.sent("send_files") == [None]
    age = desk.uploads.age(time.time())
    assert age is None or age.upload is None


@timed
async def test_the_end_waits_for_as_long_as_the_uploader_makes_progress(clock: Clock) -> None:
    desk = Desk(is_remote=True, sync_period_s=300)
    desk.commit(0)
    draining = asyncio.ensure_future(desk.uploads.drain(60.0, is_patient=True))
    for _ in range(5):
        await clock.pass_s(50)
        desk.uploads.on_answer(["moving"])
    assert not draining.done()
    for _ in range(2):
        await clock.pass_s(61)
    await draining


@timed
async def test_an_end_that_was_asked_for_takes_no_longer_than_was_said(clock: Clock) -> None:
    desk = Desk(is_remote=True, sync_period_s=300)
    desk.commit(0)
    draining = asyncio.ensure_future(desk.uploads.drain(60.0))
    await clock.pass_s(0)
    await clock.pass_s(59)
    desk.uploads.on_answer(["moving"])
    assert not draining.done()
    await clock.pass_s(2)
    await draining


@timed
async def test_what_is_local_is_not_published(clock: Clock) -> None:
    desk = Desk(is_remote=False, sync_period_s=5)
    desk.commit(0)
    desk.uploads.on_answer(["committed", "t0", 0])
    await clock.pass_s(600)
    assert desk.publications == 0


async def test_the_age_counts_from_the_publication_that_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 1000.0
    monkeypatch.setattr("holdfast.experiment.uploads.publishing.wall_time", lambda: now_s)
    desk = Desk(is_remote=True)
    for began_s in (1010.0, 1020.0, 1030.0):
        now_s = began_s
        desk.uploads.publish()
    desk.uploads.on_answer(["published", 0, 200])
    age = desk.uploads.age(1100.0)
    assert age is not None
    assert age.oldest_s == 80.0


async def test_storage_lacks_nothing_before_the_first_record(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    now_s = 1000.0
    monkeypatch.setattr("holdfast.experiment.uploads.publishing.wall_time", lambda: now_s)
    desk = Desk(is_remote=True)
    monkeypatch.setattr(FakeLedger, "position", Position(0, 0))  # its nodes have not joined yet
    now_s = 1300.0
    desk.uploads.publish()
    assert desk.publications == 0
    assert desk.uploads.age(1300.0) is None


async def test_two_who_want_the_same_checkpoint_are_both_answered() -> None:
    desk = Desk(is_remote=True)
    spec = TrialSpec(trial_id="t0", index=0, name="", dirname="d", config={})
    record = CheckpointRecord(index=0, iteration=1, attempt=1, files=1, size_bytes=1)
    both = [asyncio.ensure_future(desk.uploads.questions.fetch(spec, record)) for _ in range(2)]
    await asyncio.sleep(0)
    desk.uploads.on_answer(["done", "t0/0", "gone"])
    assert await asyncio.gather(*both) == ["gone", "gone"]
    assert [message for message in desk.uploader.sent if message[0] == "fetch"] == [
        ["fetch", "t0/0", "d/checkpoint_000000"]
    ]


async def test_everybody_whom_back_pressure_held_is_answered() -> None:
    desk, answered = Desk(), list[str]()
    for number in range(3 * BACKLOG):
        desk.commit(number)
        if desk.uploads.has_backlog:
            desk.uploads.hold(answered.append)
    held = 2 * BACKLOG + 1
    assert answered == []
    for number in range(3 * BACKLOG):
        desk.uploads.on_answer(["committed", f"t{number}", 0])
    assert len(answered) == held
    assert len(desk.events) == 3 * BACKLOG


@pytest.mark.parametrize("how", ["discard", "discard_superseded"])
async def test_nothing_superseded_is_removed_before_the_journal_is_on_the_disk_after_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    disk = BadDisk(tmp_path, monkeypatch, refusals=1)
    desk = Desk(journal_writer=disk.journal_writer)
    disk.count = lambda: len(desk.sent("discard"))
    disk.journal_writer.append([b"a row that supersedes it"])
    desk.supersede(0, how)
    assert desk.sent("discard") == []
    await disk.journal_writer.sync()
    assert disk.asked == [0, 0]  # it has failed, and was written again
    assert desk.sent("discard") == ["t0"]
    await disk.journal_writer.close()


@pytest.mark.parametrize("how", ["discard", "discard_superseded"])
async def test_nothing_superseded_is_removed_once_the_journal_counts_as_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Not at the end, either, and not when the disk works again."""
    disk = BadDisk(tmp_path, monkeypatch, refusals=2)
    desk = Desk(journal_writer=disk.journal_writer)
    for number in range(2):
        disk.journal_writer.append([b"a row that supersedes one"])
        desk.supersede(number, how)
        await disk.journal_writer.sync()
    desk.uploads.on_answer(["closed", []])
    await desk.uploads.close(60.0)
    await disk.journal_writer.close()
    assert len(disk.asked) == 2
    assert [order[0] for order in desk.uploader.sent] == ["close"]


async def test_a_checkpoint_that_is_nowhere_is_waited_for_no_more() -> None:
    desk = Desk()
    desk.commit(0)
    desk.uploads.on_answer(["lost", "t0", 0, "it is gone"])
    assert desk.lost == [("t0", 0, "it is gone")]
    assert not any(isinstance(event, Committed) for event in desk.events)
    await desk.uploads.drain(3600)


async def test_a_checkpoint_that_storage_does_not_keep_is_a_loss() -> None:
    desk = Desk(is_remote=True)
    desk.commit(0)
    desk.uploads.on_answer(["uncommitted", "t0", 0, "no space"])
    text = "checkpoint 0 of trial t0 is not kept in storage: no space. The local copy stays"
    assert desk.warned == [("loss", text)]


async def test_what_lies_in_its_storage_already_has_no_age_there() -> None:
    here, elsewhere = Desk(), Desk(is_remote=True)
    for desk in (here, elsewhere):
        desk.commit(0)
    later = time.time() + 100
    assert here.uploads.age(later) is None
    age = elsewhere.uploads.age(later)
    assert age is not None
    assert (age.pending_bytes, age.oldest_s >= 100) == (1, True)
    here.uploads.on_answer(["trouble", "the disk is full"])
    assert here.uploads.age(later) == StorageAge(trouble="the disk is full")


async def test_a_checkpoint_that_stays_here_is_sealed_and_not_uploaded() -> None:
    desk = Desk(is_remote=True)
    spec = TrialSpec(trial_id="t0", index=0, name="", dirname="d", config={})
    record = CheckpointRecord(
        index=3,
        iteration=1,
        attempt=1,
        files=1,
        size_bytes=1,
        upload=CheckpointUploadMode.NO_UPLOAD,
    )
    desk.uploads.commit(spec, record)
    desk.uploads.resend_state()
    assert desk.uploader.sent == [["commit", "t0", 3, "d/checkpoint_000003", 1, 0.0, True]] * 2


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (["committed", "t0", 0], ""),
        (["uncommitted", "t0", 0, "no room"], "on this machine and not in storage: no room"),
        (["lost", "t0", 0, "it is gone"], "it is gone"),
    ],
)
async def test_who_waits_for_storage_hears_of_its_own_checkpoint_alone(
    message: list[Any], told: str
) -> None:
    desk = Desk(is_remote=True)
    heard: list[str] = []
    for number in (0, 1):
        desk.commit(number)
        desk.uploads.hold_until_kept(f"t{number}", 0, heard.append)
    desk.uploads.on_answer(message)
    assert len(heard) == 1
    assert told in heard[0]


@pytest.mark.parametrize("is_patient", [True, False])
async def test_the_time_in_which_a_job_was_suspended_is_none_that_storage_took(
    monkeypatch: pytest.MonkeyPatch, is_patient: bool
) -> None:
    """The uploader has answered meanwhile, and nobody has read it yet."""
    loop, desk = asyncio.get_running_loop(), Desk(is_remote=True)
    now = [loop.time()]
    monkeypatch.setattr(loop, "time", lambda: now[0])
    closing = asyncio.ensure_future(desk.uploads.close(10.0, is_patient=is_patient))
    for seconds in (0.0, 3600.0, 14.0):
        now[0] += seconds
        for _ in range(5):
            await asyncio.sleep(0)
    assert not closing.done()
    desk.uploads.on_answer(["closed", []])
    assert await closing == []
