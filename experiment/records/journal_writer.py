"""The controller's side of the journal: appends at once; flushes and projects in the
background."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from holdfast.runtime import process_control
from holdfast.runtime.process_exits import Watched
from holdfast.runtime.service import RestartingService
from holdfast.runtime.tasks import TaskScope, first_of
from holdfast.runtime.wire import Message
from holdfast.syncer.errors import NoAnswer, StorageError
from holdfast.syncer.files import threads
from holdfast.syncer.files.durable import silent_for
from holdfast.syncer.journal.journal import START, Journal, Position, Unsynced, segment_name

# How long the projector collects rows before it writes them, the delay for readers of result.json;
# and the least time between two such writes, because each of them has a cost besides its rows.
_NUDGE_S, _NEXT_NUDGE_S = 0.05, 0.25
# With as many records it begins at once, so that little is left when a run ends.
_NUDGE_RECORDS = 500
# A projector that only has little CPU may take so many times as long as one that does nothing.
_MOST_LOOKS = 6
# How long to wait for the disk's answer after a suspended job resumes on a busy machine.
_RESUMED_S = 10.0


class NotDurable(StorageError):
    """The appended records cannot be made to survive a power cut."""


class JournalWriter:
    """Owns the journal and its projector."""

    def __init__(
        self,
        journal: Journal,
        projector: RestartingService,
        *,
        tasks: TaskScope,
        fsync_period_s: float,
        disk_deadline_s: float = 0.0,
        warn: Callable[[str], None] = lambda text: None,
        check_ownership: Callable[[], None] = lambda: None,
    ) -> None:
        """Write to `journal`.

        A disk that does not answer for `disk_deadline_s` (0: no deadline) counts as failed. `warn`
        is called about a failed fsync. `check_ownership` is called at each sync, in a thread: it
        raises StorageError if another run owns the experiment.
        """
        self._journal = journal
        self._projector = projector
        self._tasks = tasks.scope(fail=self._give_up)
        self._period_s = fsync_period_s
        self._deadline_s = disk_deadline_s or math.inf
        self._waiting: asyncio.Timeout | None = None
        self._warn = warn
        self._check_ownership = check_ownership
        self._fault: BaseException | None = None
        self._is_lost = False
        self._is_disk_silent = False
        self._fail: Callable[[BaseException], None] = lambda error: None
        self._loop = asyncio.get_running_loop()
        self._sync_timer: asyncio.TimerHandle | None = None
        self._nudge_timer: asyncio.TimerHandle | None = None
        self._nudged_s = -math.inf
        self._untold_records = 0
        self._syncing: asyncio.Task[Any] | None = None
        self._sync_again = False
        self._finishing = False
        self._is_closing = False
        self._after_sync: deque[tuple[Position, Callable[[], None]]] = deque()
        self._is_written: asyncio.Future[bool] = self._loop.create_future()
        self._heard: asyncio.Future[None] = self._loop.create_future()
        self._on_progress: Callable[[int, int], None] = lambda done, total: None
        # The files of trials are as the journal says up to here.
        self.written = START
        self._followers: list[Callable[[Position], None]] = []

    @property
    def position(self) -> Position:
        return self._journal.position

    def append(self, payloads: Sequence[bytes]) -> None:
        """Append records in one write. Raises JournalFull."""
        self._journal.append(payloads)
        self._arm()
        if self._is_closing:
            return
        self._untold_records += len(payloads)
        if self._untold_records >= _NUDGE_RECORDS:
            self._nudge()
        elif self._nudge_timer is None:
            due_s = max(self._loop.time() + _NUDGE_S, self._nudged_s + _NEXT_NUDGE_S)
            self._nudge_timer = self._loop.call_at(due_s, self._nudge)

    def when_durable(self, act: Callable[[], None]) -> None:
        """Call `act` once everything appended so far survives a power cut."""
        self._after_sync.append((self._journal.position, act))
        self._arm()

    def report_to(self, fail: Callable[[BaseException], None]) -> None:
        """Call `fail` with the error that ends the run.

        Either the journal cannot be stored, or an action after a sync has raised.
        """
        self._fail = fail
        if self._fault is not None:
            fail(self._fault)

    def follow(self, tell: Callable[[Position], None]) -> None:
        """Regularly tell another reader, besides the projector, how far the journal goes."""
        self._followers.append(tell)

    def rotate(self) -> int:
        """Seal the segment and return its number; it is durable at the next sync."""
        return self._journal.rotate()

    async def sync(self) -> None:
        """Make everything appended so far durable now."""
        # One at a time: a second sync in parallel would find nothing left to flush.
        while (under_way := self._syncing) is not None:
            await asyncio.wait([under_way])
        self._begin_sync()
        if (begun := self._syncing) is not None:
            await asyncio.wait([begun])

    def hurry(self, deadline_s: float) -> None:
        """From now on, also in a current sync, wait at most this long for a disk that does not
        answer."""
        self._deadline_s = min(self._deadline_s, deadline_s)
        if self._waiting is not None and not self._waiting.expired():
            until = self._loop.time() + self._deadline_s
            self._waiting.reschedule(min(until, self._waiting.when() or until))

    def _arm(self) -> None:
        # A record that comes during the last sync is forced when the journal is closed.
        if self._sync_timer is None and not self._is_closing:
            self._sync_timer = self._loop.call_later(self._period_s, self._begin_sync)

    def _disarm(self) -> None:
        if self._sync_timer is not None:
            self._sync_timer.cancel()
            self._sync_timer = None

    def _begin_sync(self) -> None:
        self._disarm()  # a timer that nobody knows would begin a sync after the end
        if self._syncing is not None:
            # The current sync may not include later records.
            self._sync_again = True
            return
        self._syncing = self._tasks.start(self._sync())
        self._syncing.add_done_callback(self._synced)

    def _synced(self, _: asyncio.Task[Any]) -> None:
        self._syncing = None
        if self._sync_again:
            self._sync_again = False
            self._begin_sync()

    async def _sync(self) -> None:
        if self._is_lost:
            return
        try:
            position = await self._flush()
        except StorageError as error:
            self._lose(error)
            return
        self._journal.forced(position)
        while self._after_sync and self._after_sync[0][0] <= position:
            act = self._after_sync.popleft()[1]
            try:
                act()
            except Exception as error:  # a bug: the other actions still run, and fit() raises it
                self._give_up(error)

    async def _flush(self) -> Position:
        """Flush the journal. Raises StorageError: then the records that are not on the disk are
        lost."""
        unsynced = self._journal.unsynced()
        try:
            return await self._force(unsynced)
        except NoAnswer as error:
            raise self._give_up_on_disk() from error
        except OSError as error:
            failed = error
        try:
            self._journal.write_again(unsynced)
            position = await self._force(self._journal.unsynced())
        except NoAnswer as error:
            raise self._give_up_on_disk() from error
        except OSError as error:
            raise NotDurable(
                "force to the disk",
                str(self._journal.directory),
                f"{error.strerror or error}, also in another file",
                "Reports of the last seconds may be lost in a power cut. Restore once the disk "
                "works",
            ) from error
        self._warn(
            f"flushing the journal to the disk failed ({failed.strerror or failed}); the affected "
            f"records were written again, to {segment_name(position.segment)}"
        )
        return position

    async def _force(self, unsynced: Unsynced) -> Position:
        """Raises OSError if the disk refuses, NoAnswer if it is silent."""

        def force() -> Position:
            position = unsynced.force()
            self._check_ownership()
            return position

        until = None if self._deadline_s == math.inf else self._loop.time() + self._deadline_s
        # Closing a file hangs as well if the network file system is dead.
        asked = threads.begin(force)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until) as self._waiting:
                    await asyncio.wait([asked])
            self._waiting = None
            if not asked.done():
                # While a job is suspended, time passes without the disk doing anything.
                await asyncio.wait([asked], timeout=min(_RESUMED_S, self._deadline_s))
            if not asked.done():
                raise NoAnswer
            return asked.result()
        finally:
            self._waiting = None
            asked.cancel()

    def _give_up_on_disk(self) -> NotDurable:
        self._is_disk_silent = True
        return NotDurable(
            "force to the disk",
            str(self._journal.directory),
            silent_for(self._deadline_s),
            "Reports since then may be lost in a power cut. Restore once the disk, or the "
            "network file system, answers again",
        )

    def _lose(self, error: StorageError) -> None:
        """Give up: actions that wait for the disk will not run, so nothing superseded is
        removed."""
        self._is_lost = True
        self._after_sync.clear()
        self._give_up(error)

    def _give_up(self, error: BaseException) -> None:
        if self._fault is None:
            self._fault = error
            self._fail(error)

    def _nudge(self) -> None:
        self._disarm_nudge()
        self._nudged_s, self._untold_records = self._loop.time(), 0
        position = self._journal.position
        self._projector.send(["upto", position.segment, position.offset])
        for tell in self._followers:
            tell(position)

    def resend_state(self) -> None:
        """Tell a projector, also a new one, how far the journal goes."""
        self._nudge()
        if self._finishing:
            self._projector.send(["close"])

    def on_projector(self, message: Message) -> str | None:
        """Handle a message of the projector; returns a text for the user, if any."""
        match message:
            case ["trouble", str(text)]:
                return text
            case ["done", bool(is_complete)]:
                if not self._is_written.done():
                    self._is_written.set_result(is_complete)
            case ["written", int(segment), int(offset)]:
                self.written = max(self.written, Position(segment, offset))
            case ["progress", int(done), int(total)]:
                self._on_progress(done, total)
                if not self._heard.done():
                    self._heard.set_result(None)
            case _:
                raise ValueError(f"not a message of the projector: {message!r:.100}")
        return None

    async def abandon_projector(self) -> None:
        """Kill the projector: a restore writes the missing rows of the trials' files."""
        self._projector.kill()
        await self._projector.close()

    def processes(self) -> list[Watched]:
        return self._projector.processes()

    async def finish(
        self,
        patience_s: float,
        progress: Callable[[int, int], None] = lambda done, total: None,
        *,
        is_patient: bool = True,
    ) -> bool:
        """Sync, and wait for the projector to catch up and end; return whether it has written
        everything.

        From now on it has this process's priority. It may take any time: only `patience_s` without
        progress end the wait. If it `is_patient`, it waits longer while the projector uses CPU
        time, of which it may get little on a busy machine. `progress` is called with the bytes of
        the journal that the files contain, and their total.
        """
        self._cancel_timers()
        await self.sync()
        self._on_progress = progress
        self._finishing = True
        self.resend_state()
        threads.begin(partial(process_control.hurry, self._projector.pid))
        done, ended = self._is_written, self._projector.ended
        used_s, looks = self._projector.cpu_time_s, 0
        while not (done.done() or ended.done()):
            heard = self._heard = self._loop.create_future()
            ends: list[asyncio.Future[Any]] = [ended, done, heard]
            if await first_of(ends, patience_s):
                continue
            used_before_s, used_s = used_s, self._projector.cpu_time_s
            looks += 1
            if used_s <= used_before_s or looks > _MOST_LOOKS or not is_patient:
                self._projector.kill()
                break
        await self._projector.close(has_finished=done.done())
        is_written = done.done() and done.result()
        if is_written:
            self.written = self.position
        return is_written

    def _disarm_nudge(self) -> None:
        if self._nudge_timer is not None:
            self._nudge_timer.cancel()
            self._nudge_timer = None

    def _cancel_timers(self) -> None:
        self._disarm()
        self._disarm_nudge()

    async def close(self) -> None:
        """Flush and close the journal, after the last sync."""
        self._cancel_timers()
        self._sync_again, self._is_closing = False, True
        await self.sync()
        if self._is_disk_silent:
            threads.ThreadCall(self._journal.abandon)  # not awaited: it may hang as the fsync does
            return
        if self._is_lost:
            self._journal.abandon()
            return
        try:
            self._journal.close()
        except (OSError, StorageError) as error:
            self._lose(
                error
                if isinstance(error, StorageError)
                else NotDurable("force to the disk", str(self._journal.directory), str(error))
            )
