"""Waits for storage: repeated messages, progress that extends the deadline, and the end."""

import asyncio
import errno
import itertools
import time
from pathlib import Path

import pytest

from holdfast import late
from holdfast.syncer.checkpoint.manifest import hash_directory
from holdfast.syncer.errors import StorageRefused, StorageUnavailable
from holdfast.syncer.stores import retry
from holdfast.syncer.stores.retry import StorageRetry, Turns, moved_to

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_FIRST_WAIT_S", 0.0)
    monkeypatch.setattr(retry, "_MOVES_EVERY_S", 0.0)


def waiting(timeout_s: float = 60) -> StorageRetry:
    return StorageRetry(timeout_s=timeout_s, where="s3://bucket", tell=lambda text: None)


async def test_two_waits_of_the_same_words_end_one_after_the_other() -> None:
    kept = waiting()
    first, second = asyncio.Event(), asyncio.Event()

    one, other = (
        asyncio.create_task(kept.until_done("list trial", ended.wait)) for ended in (first, second)
    )
    await asyncio.sleep(0)
    assert kept.unfinished == {"list trial": "not done yet"}
    first.set()
    await one
    assert kept.unfinished == {"list trial": "not done yet"}
    second.set()
    await other
    assert kept.unfinished == {}


async def test_what_makes_no_progress_ends_with_its_last_failure() -> None:
    async def fails() -> None:
        raise StorageUnavailable("put", "key", "503 Slow Down")

    with pytest.raises(StorageUnavailable, match=r"progress within 0.05 s: cannot put key: 503"):
        await waiting(timeout_s=0.05).until_done("upload", fails)


async def test_a_call_that_timed_out_by_itself_is_no_lack_of_progress() -> None:
    async def fails() -> None:
        raise OSError(errno.ETIMEDOUT, "Connection timed out")

    with pytest.raises(TimeoutError, match="Connection timed out"):
        await waiting(timeout_s=9000).until_done("upload", fails)


async def test_what_cannot_work_later_is_raised_at_once() -> None:
    async def refused() -> None:
        raise ExceptionGroup("of a task group", [StorageRefused("put", "key", "403")])

    with pytest.raises(StorageRefused):
        await waiting().until_done("upload", refused)


async def test_a_part_makes_progress_only_beyond_where_it_was_in_any_attempt() -> None:
    heard: list[None] = []
    kept = StorageRetry(
        timeout_s=60, where="here", tell=lambda text: None, moving=lambda: heard.append(None)
    )
    tries = 0

    async def attempt() -> None:
        nonlocal tries
        tries += 1
        for name, count in [("a", 1), ("b", 1), ("a", 2), ("b", tries)]:
            moved_to(name, count)
            await asyncio.sleep(0)
        if tries < 3:
            raise StorageUnavailable("fetch", "here", "503 Slow Down")

    await kept.until_done("fetch", attempt)
    assert len(heard) == 3 + 2
    moved_to("a", 9)


async def test_what_succeeds_is_progress_for_those_that_wait_for_their_turn() -> None:
    """A hundred trials save at once: the storage is busy with the others, and well."""
    told: dict[str, int] = {"first": 0, "second": 0}
    turns, ends = Turns(1), asyncio.Event()

    def of(name: str) -> StorageRetry:
        def moving() -> None:
            told[name] += 1

        return StorageRetry(timeout_s=60, where="here", tell=lambda text: None, moving=moving)

    async def attempt() -> None:
        async with turns:
            await ends.wait()

    first, second = (asyncio.create_task(of(name).until_done("upload", attempt)) for name in told)
    await asyncio.sleep(0)
    assert turns._waiting.total() == 1
    ends.set()
    await first
    assert told == {"first": 0, "second": 1}
    await second
    assert not turns._waiting


async def test_every_file_of_a_checkpoint_that_is_hashed_is_progress(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}").write_bytes(b"weights")
    counts: list[int] = []
    hash_directory(tmp_path, on_file=counts.append)
    assert counts == [1, 2, 3]


async def test_the_time_in_which_this_process_was_suspended_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As by Ctrl-Z, or with its job: the storage has answered long ago."""
    monkeypatch.setattr(late, "LATE_S", 0.05)
    stored = asyncio.Event()
    uploading = asyncio.create_task(waiting(0.01).until_done("upload", stored.wait))
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_soon(stored.set)
    suspended_for(0.1)
    await uploading


async def test_after_it_was_suspended_an_operation_has_its_whole_time_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(late, "LATE_S", 0.05)
    uploading = asyncio.create_task(waiting(0.01).until_done("upload", asyncio.Event().wait))
    await asyncio.sleep(0)
    suspended_for(0.1)
    with pytest.raises(StorageUnavailable, match=r"no progress within 0\.01 s"):
        await uploading


def suspended_for(seconds: float) -> None:
    time.sleep(seconds)


async def test_one_outage_of_many_operations_is_told_once_and_its_end_once() -> None:
    told: list[str] = []
    storage = StorageRetry(timeout_s=60, where="the bucket", tell=told.append, is_back=told.append)
    is_up, all_failed = asyncio.Event(), asyncio.Event()
    failed = itertools.count(1)

    async def attempt() -> str:
        if is_up.is_set():
            return "done"
        if next(failed) == 20:
            all_failed.set()
        raise StorageUnavailable("upload", "the bucket", "no route")

    several = [asyncio.create_task(storage.until_done(f"upload {n}", attempt)) for n in range(20)]
    await all_failed.wait()
    is_up.set()
    assert await asyncio.gather(*several) == ["done"] * 20
    first, last = told
    assert first.endswith("no route; retrying")
    assert last == "the bucket answers again"
