"""A page's server in this process, and a browser of few words."""

from __future__ import annotations

import asyncio
import gc
import http.client
import json
import queue
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.web.server import Address, WebServer, WebSettings
from tests.rig.workers.processes import PATIENCE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Got:
    """An answer. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Browser:
    """Keeps one cookie, and sends the headers of a browser. `host` may be a lie."""

    def __init__(self, port: int, *, host: str = "", cookie: str = "") -> None:
        self.port = port
        self.host = host or f"127.0.0.1:{port}"
        self.cookie = cookie

    @classmethod
    def opened(cls, url: str) -> Browser:
        """A browser that has followed the URL with the token."""
        port, path = re.match(r"http://[^/]*:(\d+)(/.*)", url).groups()  # type: ignore[union-attr]
        made = cls(int(port))
        made.cookie = made.get(path).headers["set-cookie"].partition(";")[0]
        return made

    def get(self, path: str, method: str = "GET", **headers: str) -> Got:
        return self.ask(method, path, None, {k.replace("_", "-"): v for k, v in headers.items()})

    def post(self, path: str, plain: Any, **headers: str) -> Got:
        given = {"Origin": f"http://{self.host}", "Content-Type": "application/json"}
        given |= {name.replace("_", "-"): text for name, text in headers.items()}
        body = plain if isinstance(plain, bytes) else json.dumps(plain).encode()
        return self.ask("POST", path, body, {k: v for k, v in given.items() if v})

    def ask(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Got:
        connection = self._connection()
        try:
            connection.request(method, path, body, self._sent(headers))
            answer = connection.getresponse()
            found = {name.lower(): text for name, text in answer.getheaders()}
            return Got(status=answer.status, headers=found, body=answer.read())
        finally:
            connection.close()

    @contextmanager
    def stream(self, path: str, **headers: str) -> Iterator[Events]:
        """The events of a stream, until the end of the block."""
        connection = self._connection()
        connection.request("GET", path, None, self._sent(headers))
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        try:
            yield Events(answer)
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)

    def _sent(self, headers: Mapping[str, str]) -> dict[str, str]:
        cookie = {"Cookie": self.cookie} if self.cookie else {}
        return {"Host": self.host, **cookie, **headers}


class Events:
    """Server-sent events as they come."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self._answer = answer

    def next(self, name: str = "") -> tuple[str, Any]:
        """The next event, of this name if one is given. Raises AssertionError at the end."""
        while True:
            kind, data = "", ""
            while line := self._line():
                key, _, text = line.partition(": ")
                kind, data = (text, data) if key == "event" else (kind, data)
                data = text if key == "data" else data
            if kind and name in ("", kind):
                return kind, json.loads(data)

    def ends(self) -> bool:
        """Wait until the server ends the stream."""
        while self._answer.readline():
            pass
        return True

    def _line(self) -> str:
        line = self._answer.readline()
        assert line, "the stream has ended"
        return line.decode().rstrip("\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A running server. `troubles` has the lines that it has printed."""

    address: Address
    server: WebServer
    loop: asyncio.AbstractEventLoop
    thread: threading.Thread
    troubles: list[str]

    def browser(self) -> Browser:
        """One that was opened with the URL."""
        return Browser.opened(self.address.url)

    def end(self) -> None:
        self.loop.call_soon_threadsafe(self.server.end)
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()


@contextmanager
def served(path: Path | str, **settings: Any) -> Iterator[Served]:
    """A server in a thread, on a free port of loopback. What it sets for its whole process is
    undone."""
    threshold, interval_s = gc.get_threshold(), sys.getswitchinterval()
    troubles: list[str] = []
    server = WebServer(WebSettings(path=str(path), **{"port": 0, **settings}), troubles.append)
    started: queue.SimpleQueue[asyncio.AbstractEventLoop] = queue.SimpleQueue()
    thread = threading.Thread(target=server.run, args=(started.put,), name="page")
    thread.start()
    made = Served(
        address=server.address,
        server=server,
        loop=started.get(timeout=PATIENCE_S),
        thread=thread,
        troubles=troubles,
    )
    try:
        yield made
    finally:
        if thread.is_alive():
            made.end()
        gc.set_threshold(*threshold)
        sys.setswitchinterval(interval_s)
    assert troubles == []
