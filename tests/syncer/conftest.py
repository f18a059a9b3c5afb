"""Real S3 servers for the whole session, and an event loop like the uploader's."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import stat
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.syncer.stores.location import Location
from tests.rig.storage.s3_server import S3Server, rclone_server


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="session")
def rclone_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that rclone serves: `bucket` is empty, and `full` has a folder of 2,100 files."""
    folder = tmp_path_factory.mktemp("rclone")
    (folder / "bucket").mkdir()
    (folder / "full" / "many").mkdir(parents=True)
    for number in range(2100):
        (folder / "full" / "many" / f"{number:04}").write_bytes(b"x")
    return folder


@pytest.fixture(scope="session")
def rclone(rclone_folder: Path) -> Iterator[S3Server]:
    with rclone_server(rclone_folder) as server:
        yield server


@pytest.fixture
def temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The test's own temporary directory, for copies of remote checkpoints."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.fixture
def refused_folders(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every fsync of a folder in this list fails; fsyncs of files and other folders do not."""
    refused: list[str] = []
    fsync = os.fsync

    def forced(descriptor: int) -> None:
        facts = os.fstat(descriptor)
        if stat.S_ISDIR(facts.st_mode) and any(
            os.path.samestat(facts, os.stat(path)) for path in refused
        ):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", forced)
    return refused


class Distant:
    """A place that holdfast does not know to be on this machine, and its files."""

    def __init__(self, folder: Path) -> None:
        from fsspec.implementations.local import LocalFileSystem

        opened: list[str] = []

        class DistantFileSystem(LocalFileSystem):  # type: ignore[misc]
            cachable = False

            def _open(self, path: str, mode: str = "rb", *args: Any, **kwargs: Any) -> Any:
                if mode == "rb":
                    opened.append(path)
                return super()._open(path, mode, *args, **kwargs)

        self.opened = opened
        self.folder = folder
        self.kind = DistantFileSystem
        self.location = Location.resolve(str(folder), DistantFileSystem(), {})


@pytest.fixture
def distant(tmp_path: Path) -> Distant:
    return Distant(tmp_path / "distant")


Answer = tuple[int, dict[str, str], bytes] | None
Responder = Callable[[str, str, str, bytes], Answer]


class ScriptedS3:
    """A server on loopback whose answers a test writes; it records the requests.

    The responder gets method, path with query, head and body. None breaks the connection, and so
    does an answer with `Connection: close`.
    """

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []
        self.port = 0
        self._respond: Responder = lambda *_: (500, {}, b"")

    def location(self, respond: Responder) -> Location:
        self._respond = respond
        return Location.resolve(
            "s3://bucket/x?access_key=key1&secret_key=secret"
            f"&endpoint_override=http://127.0.0.1:{self.port}",
            None,
            {},
        )

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                method, path, _ = head.split("\r\n")[0].split(" ")
                length = re.search(r"(?i)content-length: (\d+)", head)
                if "100-continue" in head.lower():
                    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                body = await reader.readexactly(int(length[1])) if length else b""
                self.requests.append((method, path))
                answer = self._respond(method, path, head, body)
                if answer is None:
                    return
                writer.write(_response(method, *answer))
                await writer.drain()
                if answer[1].get("Connection") == "close":
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


def _response(method: str, status: int, headers: dict[str, str], body: bytes) -> bytes:
    sent = {"Content-Length": str(len(body)), **headers}
    lines = [f"HTTP/1.1 {status} Told", *(f"{name}: {value}" for name, value in sent.items())]
    return "\r\n".join([*lines, "", ""]).encode() + (b"" if method == "HEAD" else body)


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedS3]:
    script = ScriptedS3()
    server = await asyncio.start_server(script.serve, "127.0.0.1", 0)
    script.port = server.sockets[0].getsockname()[1]
    yield script
    server.close()
    await server.wait_closed()
