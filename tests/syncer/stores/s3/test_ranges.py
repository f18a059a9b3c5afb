"""Downloads in ranges: from servers that keep to HTTP, and from those that do not."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast.syncer.errors import StorageError, StorageUnavailable
from holdfast.syncer.files.durable import new_file
from holdfast.syncer.stores import retry
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.s3 import http, ranges
from holdfast.syncer.stores.s3.ranges import ObjectReplaced
from holdfast.syncer.stores.store import ObjectInfo, Store
from tests.rig.faults.ills import Ill, Some
from tests.rig.storage.proxy import Proxy
from tests.rig.storage.s3_server import S3Server
from tests.syncer.conftest import ScriptedS3

pytestmark = pytest.mark.anyio

SIZE = 4500
OLD, NEW = os.urandom(SIZE), os.urandom(SIZE)
EACH = 1000


class Ranged:
    """A server with one object, which a test may disturb; notes the ranges that it is asked for.

    `disturb(start, end, answer)` may return another answer to the range.
    """

    def __init__(self, content: bytes = OLD, etag: str | None = '"old"') -> None:
        self.content, self.etag = content, etag
        self.asked: list[tuple[int, int]] = []
        self.conditions: list[str | None] = []
        self.disturb: Callable[[int, int, Any], Any] = lambda start, end, answer: answer

    def __call__(self, method: str, path: str, head: str, body: bytes) -> Any:
        if not path.startswith("/bucket/x/key"):
            return 200, {"ETag": '"first"'}, b"first"
        condition = re.search(r"(?i)\r\nif-match: ([^\r]+)", head)
        self.conditions.append(condition[1] if condition else None)
        found = re.search(r"(?i)\r\nrange: bytes=(\d+)-(\d+)", head)
        etag = {"ETag": self.etag} if self.etag else {}
        if found is None:
            self.asked.append((0, len(self.content)))
            return self.disturb(0, len(self.content), (200, etag, self.content))
        start, end = int(found[1]), min(int(found[2]) + 1, len(self.content))
        self.asked.append((start, end))
        if start >= len(self.content):
            return 416, {}, b"<Error><Code>InvalidRange</Code></Error>"
        if condition and condition[1] != self.etag:
            return 412, {}, b"<Error><Code>PreconditionFailed</Code></Error>"
        extent = {"Content-Range": f"bytes {start}-{end - 1}/{len(self.content)}"}
        return self.disturb(start, end, (206, {**etag, **extent}, self.content[start:end]))


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "RANGE_BYTES", EACH)
    monkeypatch.setattr(ranges, "_STEP_BYTES", 300)


@pytest.fixture
async def opened(scripted: ScriptedS3) -> Any:
    """Opens the store of a server."""
    stores: list[Store] = []

    async def open_store(server: Ranged) -> Store:
        stores.append(scripted.location(server).open_store())
        return stores[-1]

    yield open_store
    for store in stores:
        await store.close()


async def hashed(store: Any, target: Path, size: int = SIZE) -> str:
    return str(await store.get_hashed(ObjectInfo(key="key", size=size), target, "sha256"))


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


RANGES = [(0, 1000), (1000, 2000), (2000, 3000), (3000, 4000), (4000, 4500)]


async def test_an_object_arrives_in_ranges_of_the_first_ones_etag_and_is_hashed(
    opened: Any, tmp_path: Path
) -> None:
    server = Ranged()
    store = await opened(server)
    assert await hashed(store, tmp_path / "new") == sha256(OLD)
    assert (tmp_path / "new").read_bytes() == OLD
    assert sorted(server.asked) == RANGES
    assert server.conditions == [None, *['"old"'] * 4]


@pytest.mark.parametrize("size", [0, 1, EACH])
async def test_a_small_object_takes_one_request(opened: Any, tmp_path: Path, size: int) -> None:
    server = Ranged(OLD[:size])
    store = await opened(server)
    assert await hashed(store, tmp_path / "new", size) == sha256(OLD[:size])
    assert server.asked == [(0, size)]
    assert await store.get("key", tmp_path / "again") == size
    assert (tmp_path / "again").read_bytes() == OLD[:size]


def broken_off(answer: Any) -> Any:
    """The answer, whose connection ends after 600 bytes."""
    status, headers, body = answer
    whole = {"Content-Length": str(len(body)), "Connection": "close", **headers}
    return status, whole, body[:600]


async def test_a_range_that_breaks_off_is_asked_for_again_from_there(
    opened: Any, tmp_path: Path
) -> None:
    server = Ranged()

    def disturb(start: int, end: int, answer: Any) -> Any:
        if start not in (0, 1000, 1600):
            return answer
        return broken_off(answer)

    server.disturb = disturb
    store = await opened(server)
    assert await hashed(store, tmp_path / "new") == sha256(OLD)
    again = [(600, 1000), (1600, 2000)]
    assert sorted(server.asked) == sorted([*RANGES, *again])


async def test_one_that_breaks_off_each_time_is_an_error_and_leaves_no_file(
    opened: Any, tmp_path: Path
) -> None:
    server = Ranged()

    def disturb(start: int, end: int, answer: Any) -> Any:
        status, headers, body = answer
        headers = {"Content-Length": str(len(body)), "Connection": "close", **headers}
        return answer if start < 2000 or start >= 3000 else (status, headers, body[:100])

    server.disturb = disturb
    store = await opened(server)
    with pytest.raises(StorageUnavailable):
        await store.get("key", tmp_path / "new")
    assert os.listdir(tmp_path) == []
    assert {start for start, _ in server.asked if 2000 < start < 3000} >= {2100, 2200}


@pytest.mark.parametrize("is_checked", [True, False])
async def test_of_an_object_that_is_replaced_meanwhile_only_the_new_one_arrives(
    opened: Any, tmp_path: Path, is_checked: bool
) -> None:
    """Some servers ignore the condition."""
    server = Ranged()

    def disturb(start: int, end: int, answer: Any) -> Any:
        server.disturb = lambda start, end, answer: answer
        server.content, server.etag = NEW, '"new"'
        return answer

    server.disturb = disturb
    if not is_checked:
        respond = server.__call__
        plain: Any = lambda method, path, head, body: respond(  # noqa: E731
            method, path, re.sub(r"(?i)\r\nif-match: [^\r]+", "", head), body
        )
    else:
        plain = server
    store = await opened(plain)
    assert await hashed(store, tmp_path / "new") == sha256(NEW)
    assert (tmp_path / "new").read_bytes() == NEW


async def test_a_shorter_object_leaves_nothing_of_the_longer_one(
    opened: Any, tmp_path: Path
) -> None:
    server = Ranged()

    def disturb(start: int, end: int, answer: Any) -> Any:
        if start != 4000:
            return answer
        server.disturb = lambda start, end, answer: answer
        server.content, server.etag = NEW[:1500], '"new"'
        return broken_off((*answer[:2], answer[2] * 2))

    server.disturb = disturb
    store = await opened(server)
    assert await hashed(store, tmp_path / "new") == sha256(NEW[:1500])
    assert (tmp_path / "new").read_bytes() == NEW[:1500]


async def test_one_that_changes_at_each_attempt_is_an_error(opened: Any, tmp_path: Path) -> None:
    server = Ranged()

    def disturb(start: int, end: int, answer: Any) -> Any:
        server.etag = f'"{len(server.asked)}"'
        return answer

    server.disturb = disturb
    store = await opened(server)
    with pytest.raises(ObjectReplaced, match="it was replaced meanwhile"):
        await store.get("key", tmp_path / "new")
    assert os.listdir(tmp_path) == []


ODD_RANGES = [
    "bytes 2001-3000/4500",
    "bytes 2000-2998/4500",
    "bytes 0-999/4500",
    "bytes 2000-2999/5000",
    "bytes 2000-2999/*",
    "bytes 2999-2000/4500",
    f"bytes 2000-2999/{10**18}9",
    "words 2000-2999/4500",
]


async def test_another_range_than_the_one_asked_for_is_not_written(
    opened: Any, tmp_path: Path
) -> None:
    server = Ranged()
    store = await opened(server)
    for extent in ODD_RANGES:

        def disturb(start: int, end: int, answer: Any, extent: str = extent) -> Any:
            status, headers, body = answer
            if start != 2000:
                return answer
            return status, {**headers, "Content-Range": extent}, body

        server.disturb = disturb
        with pytest.raises(StorageUnavailable):
            await store.get("key", tmp_path / "new")
        assert os.listdir(tmp_path) == []


async def test_a_range_with_more_bytes_than_asked_for_is_refused(
    opened: Any, tmp_path: Path
) -> None:
    server = Ranged()

    def disturb(start: int, end: int, answer: Any) -> Any:
        status, headers, body = answer
        return status, headers, body + b"more"

    server.disturb = disturb
    store = await opened(server)
    with pytest.raises(StorageUnavailable, match="more bytes came"):
        await store.get("key", tmp_path / "new")
    assert os.listdir(tmp_path) == []


async def test_a_server_without_ranges_sends_all_in_one(opened: Any, tmp_path: Path) -> None:
    server = Ranged()
    server.disturb = lambda start, end, answer: (200, {"ETag": '"old"'}, OLD)
    store = await opened(server)
    assert await hashed(store, tmp_path / "new") == sha256(OLD)
    assert server.asked == [(0, 1000)]


async def test_a_server_that_answers_200_to_a_range_is_understood(
    opened: Any, tmp_path: Path
) -> None:
    """rclone 1.75 does."""
    server = Ranged()
    server.disturb = lambda start, end, answer: (200, *answer[1:])
    store = await opened(server)
    assert await hashed(store, tmp_path / "new") == sha256(OLD)
    assert sorted(server.asked) == RANGES


async def test_without_an_etag_one_that_breaks_off_begins_again(
    opened: Any, tmp_path: Path
) -> None:
    """The rest might be of another object."""
    server = Ranged(OLD, etag=None)

    def disturb(start: int, end: int, answer: Any) -> Any:
        if start != 1000:
            return answer
        server.content = NEW
        server.disturb = lambda start, end, answer: answer
        return broken_off(answer)

    server.disturb = disturb
    store = await opened(server)
    assert await hashed(store, tmp_path / "new") == sha256(NEW)
    assert (tmp_path / "new").read_bytes() == NEW


async def test_a_full_disk_ends_it_at_once_and_leaves_no_file(
    opened: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite = os.pwrite

    def refused(descriptor: int, data: Any, at: int) -> int:
        if at >= 2000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(descriptor, data, at)

    monkeypatch.setattr(os, "pwrite", refused)
    server = Ranged()
    store = await opened(server)
    with pytest.raises(StorageError, match="No space left") as told:
        await store.get("key", tmp_path / "new")
    assert "Free some space" in told.value.advice
    assert os.listdir(tmp_path) == []
    assert sorted(set(server.asked)) == sorted(server.asked)  # none a second time


async def test_a_cancelled_one_leaves_no_file_and_the_next_one_arrives(
    opened: Any, tmp_path: Path
) -> None:
    server = Ranged()
    reached = asyncio.Event()

    def disturb(start: int, end: int, answer: Any) -> Any:
        if start != 2000:
            return answer
        reached.set()
        status, headers, body = answer
        return status, {**headers, "Content-Length": str(len(body))}, body[:300]  # and no more

    server.disturb = disturb
    store = await opened(server)
    for _ in range(3):  # more than the requests that are made at the same time
        reached.clear()
        getting = asyncio.create_task(store.get("key", tmp_path / "new"))
        await reached.wait()
        getting.cancel()
        with suppress(asyncio.CancelledError):
            await getting
        assert os.listdir(tmp_path) == []
    server.disturb = lambda start, end, answer: answer
    assert await store.get("key", tmp_path / "new") == SIZE


@pytest.mark.server
@pytest.mark.parametrize("server_name", ["moto", "rclone"])
async def test_of_a_real_server_only_what_broke_off_comes_again(
    server_name: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ranges, "RANGE_BYTES", 256 << 10)
    server: S3Server = request.getfixturevalue(server_name)
    content = os.urandom((1 << 20) + 17)
    proxy = Proxy(server.endpoint, Some(ill=Ill.TRUNCATED, at=3, times=2))
    uri = server.uri("bucket/ranges").replace(server.endpoint, proxy.endpoint)
    store = Location.resolve(uri, None, {}).open_store()
    try:
        await store.put("key", content)
        assert await hashed(store, tmp_path / "new", len(content)) == sha256(content)
        assert proxy.injected[Ill.TRUNCATED] == 2
        assert sum(path.endswith("/key") for path in map(str, proxy.log)) == 1 + 5 + 2
    finally:
        await store.close()
        proxy.close()


class Taken:
    """A sink."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.content = b""

    def begin(self, headers: Any) -> None:
        self.headers = dict(headers)

    def write(self, data: bytes | memoryview) -> None:
        self.content += data


@asynccontextmanager
async def answered(*pieces: bytes) -> AsyncIterator[http.Connections]:
    """Connections to a server that answers each request with these bytes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while await reader.readuntil(b"\r\n\r\n"):
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    lines = http.Connections(
        "127.0.0.1", server.sockets[0].getsockname()[1], tls=None, connect_s=30
    )
    try:
        yield lines
    finally:
        await lines.close()
        server.close()
        await server.wait_closed()


class Answering:
    """A client whose first answer has begun to arrive when `arrive` is called."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.news = -1
        self._part: Any = None

    async def get_range(self, name: str, part: Any) -> None:
        self._part = part
        self.asked.set()
        await asyncio.Event().wait()

    def arrive(self) -> None:
        asyncio.get_running_loop().remove_reader(self.news)
        self._part.begin({"content-range": f"bytes 0-{EACH - 1}/{SIZE}", "etag": '"old"'})


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    """A new file, to write and to read."""
    with new_file(tmp_path / "new") as opened:
        yield opened


def ranged(descriptor: int, s3: Any, slots: int = 2) -> tuple[ranges.RangedDownload, Any]:
    """A download that asks this client, and its slots."""
    free = asyncio.Semaphore(slots)

    made = ranges.RangedDownload(
        s3=s3, slots=free, name="key", where="s3://bucket/key", descriptor=descriptor
    )
    return made, free


async def test_the_time_in_which_other_downloads_have_all_the_slots_does_not_count(
    descriptor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small file of a checkpoint waits for the ranges of the large ones."""
    monkeypatch.setattr(ranges, "_ANSWER_S", 0.5)
    monkeypatch.setattr(ranges, "allowance_s", lambda size: 0.5)
    download, slots = ranged(descriptor, Whole(), slots=1)
    await slots.acquire()
    fetching = asyncio.create_task(download.perform(EACH, "sha256"))
    done, _ = await asyncio.wait([fetching], timeout=0.7)
    assert not done
    slots.release()
    assert await fetching == (EACH, sha256(OLD[:EACH]))


async def test_a_download_that_asks_and_gets_nothing_ends_at_its_deadline(
    descriptor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "_ANSWER_S", 0.01)
    download, _ = ranged(descriptor, Answering(), slots=1)
    with pytest.raises(StorageUnavailable, match="within the deadline"):
        await download.perform(SIZE)


async def test_each_range_that_arrives_is_progress(
    descriptor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One file of a large model takes longer than `sync_timeout`."""
    monkeypatch.setattr(retry, "_MOVES_EVERY_S", 0.0)
    moves: list[None] = []
    waits = retry.StorageRetry(
        timeout_s=60, where="s3://bucket", tell=print, moving=lambda: moves.append(None)
    )
    download, _ = ranged(descriptor, Whole(), slots=1)
    await waits.until_done("fetch", lambda: download.perform(SIZE, "sha256"))
    assert len(moves) == len(RANGES)


class Whole:
    """A client that answers each range of the object at once."""

    async def get_range(self, name: str, part: Any) -> None:
        content = OLD[: part.arrival.size]
        end = min(part.end, len(content))
        extent = f"bytes {part.start}-{end - 1}/{len(content)}"
        part.begin({"content-range": extent, "etag": '"old"'})
        part.write(content[part.start : end])


async def test_a_body_in_chunks_reaches_its_sink_and_the_connection_serves_again() -> None:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    async with answered(head, b"3\r\nabc\r\n", b"2\r\nde\r\n0\r\n\r\n") as lines:
        for _ in range(2):
            sink = Taken()
            answer = await lines.ask("GET", "/x", {}, b"", deadline_s=30, sink=sink)
            assert (answer.status, sink.content, bytes(answer.body)) == (200, b"abcde", b"")
            assert lines.waiting == 1


async def test_the_deadline_restarts_as_long_as_bytes_arrive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "_MOVES_EVERY_S", 0.0)
    async with asyncio.timeout(0.0) as passed:
        http._Extending(Taken(), passed, 60.0).write(b"x")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert not passed.expired()
