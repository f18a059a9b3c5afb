"""A real S3 server behind a proxy that does to the n-th request what networks and servers do."""

from __future__ import annotations

import hashlib
import http.client
import http.server
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import StrEnum
from typing import Final

_DELAY_S: Final = 0.5


class Ill(StrEnum):
    """What befalls a request."""

    LATENCY = "it takes half a second longer"
    RESET = "the connection breaks before it arrives"
    ANSWER_LOST = "it is performed, and the connection breaks before the answer arrives"
    ERROR = "500 InternalError"
    SLOW_DOWN = "503 SlowDown"
    FORBIDDEN = "403 AccessDenied"
    EXPIRED = "400 ExpiredToken"
    SKEWED = "403 RequestTimeTooSkewed"
    TRUNCATED = "the answer breaks off in the middle"
    CORRUPTED = "a bit of what is put is flipped on its way"
    PHANTOM = "the answer is success, and nothing was put"


_CODES: Final[Mapping[Ill, tuple[int, str]]] = {
    Ill.ERROR: (500, "InternalError"),
    Ill.SLOW_DOWN: (503, "SlowDown"),
    Ill.FORBIDDEN: (403, "AccessDenied"),
    Ill.EXPIRED: (400, "ExpiredToken"),
    Ill.SKEWED: (403, "RequestTimeTooSkewed"),
}
_PUTS_ONLY: Final = frozenset({Ill.CORRUPTED, Ill.PHANTOM})
_HOP_BY_HOP: Final = frozenset({"connection", "expect", "keep-alive", "transfer-encoding"})


class FaultProxy:
    """Listens on loopback and passes on what it hears, but for `times` requests from the `at`-th.

    `log` has every request, `struck` those that were ill; `received` counts the bytes of bodies.
    """

    def __init__(
        self, endpoint: str, ill: Ill = Ill.LATENCY, *, at: int = 0, times: int = 1
    ) -> None:
        self.target = endpoint.removeprefix("http://")
        self.ill, self._at, self._times = ill, at, times
        self.log: list[str] = []
        self.struck: list[str] = []
        self.received = 0
        self._is_meant: Callable[[str, bool], bool] = lambda line, is_copy: False
        self._lock = threading.Lock()
        self._flows = threading.Event()
        self._flows.set()
        proxy = self

        class Handler(_Handler):
            owner = proxy

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def stall(self) -> None:
        """From now on requests are taken in and not answered, until the proxy is closed."""
        self._flows.clear()

    def wait_while_stalled(self) -> None:
        self._flows.wait()

    def strike_copies(self, ill: Ill) -> None:
        """From now on, this befalls every copy of an object."""
        self.ill, self._is_meant = ill, lambda _, is_copy: is_copy

    def strike_completions(self, ill: Ill, *, times: int) -> None:
        """This befalls the next completions of uploads in parts."""
        left = iter(range(times))
        self.ill = ill
        self._is_meant = lambda line, _: (
            line.startswith("POST") and "uploadId=" in line and next(left, None) is not None
        )

    def strikes(self, method: str, path: str, *, size: int = 0, is_copy: bool = False) -> bool:
        """Count a request with a body of this size; whether it is one of the ill ones."""
        with self._lock:
            self.log.append(f"{method} {path}")
            self.received += size
            number = len(self.log)
            is_meant = 0 < self._at <= number < self._at + self._times
            is_meant |= self._is_meant(self.log[-1], is_copy)
            if is_meant and (method == "PUT" or self.ill not in _PUTS_ONLY):
                self.struck.append(f"{method} {path}")
                return True
            return False

    def close(self) -> None:
        self._flows.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients hang up when they like."""


class _Handler(http.server.BaseHTTPRequestHandler):
    owner: FaultProxy
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.owner.wait_while_stalled()
        is_copy = "x-amz-copy-source" in self.headers
        struck = self.owner.strikes(self.command, self.path, size=len(body), is_copy=is_copy)
        ill = self.owner.ill if struck else None
        if ill is None:
            self._pass_on(body)
        else:
            self._strike(ill, body)

    do_PUT = do_POST = do_DELETE = do_HEAD = do_GET

    def _strike(self, ill: Ill, body: bytes) -> None:
        match ill:
            case Ill.LATENCY:
                threading.Event().wait(_DELAY_S)
                self._pass_on(body)
            case Ill.RESET:
                self._break_off()
            case Ill.ANSWER_LOST:
                self._ask(body)
                self._break_off()
            case Ill.TRUNCATED:
                answer, content = self._ask(body)
                self._answer(answer, content, sent=len(content) // 2)
                self._break_off()
            case Ill.CORRUPTED:
                self._pass_on(body[:-1] + bytes([body[-1] ^ 1]) if body else body)
            case Ill.PHANTOM:
                self.send_response(200)
                self.send_header("ETag", f'"{hashlib.md5(body).hexdigest()}"')
                self.send_header("Content-Length", "0")
                self.end_headers()
            case _:
                self._refuse(*_CODES[ill])

    def _pass_on(self, body: bytes) -> None:
        answer, content = self._ask(body)
        self._answer(answer, content, sent=len(content))

    def _ask(self, body: bytes) -> tuple[http.client.HTTPResponse, bytes]:
        connection = http.client.HTTPConnection(self.owner.target, timeout=60)
        try:
            connection.putrequest(
                self.command, self.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in self.headers.items():
                if name.lower() not in _HOP_BY_HOP:
                    connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer, answer.read()
        finally:
            connection.close()

    def _answer(self, answer: http.client.HTTPResponse, content: bytes, *, sent: int) -> None:
        self.send_response_only(answer.status, answer.reason)
        has_length = False
        for name, value in answer.getheaders():
            has_length |= name.lower() == "content-length"
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        if not has_length:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[:sent])
        self.wfile.flush()

    def _refuse(self, status: int, code: str) -> None:
        content = f"<Error><Code>{code}</Code><Message>by the test</Message></Error>".encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _break_off(self) -> None:
        """With a reset: what is still in the buffers does not arrive either."""
        self.close_connection = True
        with suppress(OSError):
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()

    def log_message(self, *_: object) -> None:
        """The log of requests is the proxy's."""
