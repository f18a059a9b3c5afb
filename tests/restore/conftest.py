"""A user's script on a machine of its own, killed and restored as a test likes."""

from __future__ import annotations

import json
import queue
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing import checker
from holdfast.testing.s3_server import S3Server, make_bucket, moto_server, rclone_server
from holdfast.testing.script import Gate, UserScript, read_notes

USER_SCRIPT = Path(__file__).parent / "user_script.py"


@dataclass
class Bench:
    """Where one experiment of `user_script.py` is run: `options` are the same for each start."""

    folder: Path
    stack: ExitStack
    options: dict[str, Any] = field(default_factory=dict)
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def storage(self) -> Path:
        return self.folder / "storage"

    @property
    def root(self) -> Path:
        return self.storage / "run"

    def start(self, **options: Any) -> UserScript:
        """Run the script; what is given here is said besides `self.options`."""
        given = {"storage": str(self.storage), "epochs": 4, **self.options, **options}
        return self.run(USER_SCRIPT, json.dumps(given))

    def restore(self, resume: dict[str, Any] | None = None, **options: Any) -> UserScript:
        return self.start(restore=resume or {}, **options)

    def run(self, path: Path, *arguments: str, cwd: Path | None = None) -> UserScript:
        script = UserScript(
            path, *arguments, folder=self.folder / "bench", environ=self.environ, cwd=cwd
        )
        return self.stack.enter_context(script)

    def write(self, text: str, name: str = "script.py") -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def gate(self, name: str) -> Gate:
        gate = Gate(self.folder / "bench", name)
        self.stack.callback(gate.open)
        return gate

    def notes(self) -> list[dict[str, Any]]:
        return read_notes(self.folder / "bench")

    def problems(self, root: Path | None = None, **options: Any) -> list[str]:
        """What an independent checker finds wrong with the experiment's directory."""
        return checker.check(root or self.root, notes=self.notes(), **options)


class Proxy:
    """Stands between the experiment and its storage: tells what was done, and breaks it off."""

    def __init__(self, endpoint: str) -> None:
        host, _, port = endpoint.removeprefix("http://").partition(":")
        self._target = (host, int(port))
        self._done: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self._open: set[socket.socket] = set()
        self._is_broken = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def wait_for(self, method: str, ending: str, within_s: float = 30) -> None:
        """Wait until the next such request has been answered."""
        while True:
            found, path = self._done.get(timeout=within_s)
            if found == method and path.endswith(ending):
                return

    def break_off(self) -> None:
        """Cut every connection, and each new one, until `mend`."""
        self._is_broken = True
        for sock in list(self._open):
            self._cut(sock)

    def mend(self) -> None:
        self._is_broken = False

    def close(self) -> None:
        self.break_off()
        # A plain close would leave the thread in `accept`.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self._is_broken:
                    client.close()
                    continue
                server = socket.create_connection(self._target)
                self._open |= {client, server}
                asked: list[tuple[str, str]] = []
                for pair in ((client, server), (server, client)):
                    arguments = (*pair, asked, pair[0] is client)
                    threading.Thread(target=self._pipe, args=arguments, daemon=True).start()

    def _pipe(
        self,
        source: socket.socket,
        target: socket.socket,
        asked: list[tuple[str, str]],
        is_request: bool,
    ) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if is_request and (found := _REQUEST.match(data)):
                    asked[:] = [(found[1].decode(), found[2].decode())]
                target.sendall(data)
                # An interim answer only asks for the body.
                if not is_request and asked and not data.startswith(b"HTTP/1.1 100"):
                    self._done.put(asked.pop())
        for sock in (source, target):
            self._cut(sock)

    def _cut(self, sock: socket.socket) -> None:
        self._open.discard(sock)
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        sock.close()


_REQUEST = re.compile(rb"([A-Z]+) ([^ ?]+)[^ ]* HTTP/1.1\r\n")


def results(script: UserScript) -> list[dict[str, Any]]:
    """What the script printed of its results, in the order of the trials."""
    script.finish_reading()
    for line in script.stdout.splitlines():
        if line.startswith("RESULTS "):
            found: list[dict[str, Any]] = json.loads(line.removeprefix("RESULTS "))
            return found
    raise AssertionError(f"the script printed no results: {script.stdout}\n{script.stderr}")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """No telemetry of time: a grace of 2 s, a snapshot each 0.2 s, no progress table."""
    with ExitStack() as stack:
        yield Bench(
            folder=tmp_path,
            stack=stack,
            environ={
                "HOLDFAST_STOP_GRACE_S": "2",
                "HOLDFAST_TENSORBOARD": "1",
                "HOLDFAST_FLUSH_DEADLINE_S": "10",
                "HOLDFAST_SNAPSHOT_PERIOD_S": "0.2",
                "HOLDFAST_FSYNC_PERIOD_S": "0.05",
                "HOME": str(tmp_path / "home"),
            },
        )


@pytest.fixture
def results_of() -> Callable[[UserScript], list[dict[str, Any]]]:
    return results


@pytest.fixture(scope="session")
def moto() -> Iterator[S3Server]:
    """A moto server with a bucket named `bucket`."""
    with moto_server() as server:
        make_bucket(server, "bucket")
        yield server


@pytest.fixture
def proxy(moto: S3Server) -> Iterator[Proxy]:
    made = Proxy(moto.endpoint)
    yield made
    made.close()


@pytest.fixture(scope="session")
def rclone_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rclone")
    (folder / "bucket").mkdir()
    return folder


@pytest.fixture(scope="session")
def rclone(rclone_folder: Path) -> Iterator[S3Server]:
    with rclone_server(rclone_folder) as server:
        yield server
