"""A proxy between an experiment and its storage: it logs and holds requests, breaks connections,
and disturbs the n-th request as networks and servers do."""

from __future__ import annotations

import hashlib
import http.client
import http.server
import queue
import re
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

from holdfast.dataclass import dataclass
from tests.rig.faults.ills import Aim, Ill, Plan, Request, Some, Well
from tests.rig.workers.processes import PATIENCE_S

_DELAY_S: Final = 0.5
_CODES: Final[Mapping[Ill, tuple[int, str]]] = {
    Ill.ERROR: (500, "InternalError"),
    Ill.SLOW_DOWN: (503, "SlowDown"),
    Ill.FORBIDDEN: (403, "AccessDenied"),
    Ill.EXPIRED: (400, "ExpiredToken"),
    Ill.SKEWED: (403, "RequestTimeTooSkewed"),
}
_HOP_BY_HOP: Final = frozenset({"connection", "expect", "keep-alive", "transfer-encoding"})
_ACCESS_KEY: Final = re.compile(r"Credential=([^/]+)/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """An action at the `at`-th request: before it is passed on or, if it `is_performed`, before
    the answer is.

    `act` returns whether the request, or answer, then continues; otherwise the connection breaks.
    """

    at: int
    is_performed: bool
    act: Callable[[], bool]


class Hold:
    """A request that a proxy keeps, or its answer, until `let_go` breaks its connection."""

    def __init__(self, method: str, pattern: str, *, is_performed: bool) -> None:
        self.is_performed = is_performed
        self._wanted = (method, re.compile(pattern))
        self._met, self._ended = threading.Event(), threading.Event()

    def wait(self, within_s: float = PATIENCE_S) -> None:
        """Wait until the proxy has it."""
        assert self._met.wait(within_s), f"no {self._wanted}"

    def let_go(self) -> None:
        self._ended.set()

    def takes(self, method: str, path: str) -> bool:
        """Whether this is the request: the first one with the method and the pattern."""
        wanted, pattern = self._wanted
        return method == wanted and bool(pattern.search(path)) and not self._met.is_set()

    def keep(self) -> bool:
        self._met.set()
        self._ended.wait()
        return False


class Proxy:
    """Listens at `host`, an address of this machine, and passes on requests, as its plan allows.

    `log` has every request, `signed` whether each was, `answered` each method and path in the
    order of the answers; `struck` the disturbed requests, `injected` their number by kind;
    `received` counts the bytes of bodies.
    """

    def __init__(
        self,
        endpoint: str,
        plan: Plan | None = None,
        *,
        moment: Moment | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        self.target = endpoint.removeprefix("http://")
        self.log: list[str] = []
        self.signed: list[bool] = []
        self.answered: list[tuple[str, str]] = []
        self.struck: list[str] = []
        self.injected: Counter[Ill] = Counter()
        self.received = 0
        self._plan = plan or Well()
        self._moment = moment
        self._hold: Hold | None = None
        self._fatal: tuple[str, str] | None = None
        self._broke = threading.Event()
        self._done: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self.is_gone = False
        self._host = host
        self._server, self._thread = self._listen(0)
        self.endpoint = f"http://{host}:{self.port}"

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def _listen(self, port: int) -> tuple[_Server, threading.Thread]:
        proxy = self

        class Handler(_Handler):
            owner = proxy

        server = _Server((self._host, port), Handler, self._broke)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        return server, thread

    def strike(self, plan: Plan) -> None:
        """Use another plan from now on."""
        self._plan = plan

    def arm(self, moment: Moment) -> None:
        """Act at the `at`-th request from now on."""
        with self._lock:
            self._moment = replace(moment, at=len(self.log) + moment.at)

    def hold(self, method: str, pattern: str, *, is_performed: bool) -> Hold:
        """Keep the next request whose path has this pattern, or its answer if it
        `is_performed`."""
        self._hold = Hold(method, pattern, is_performed=is_performed)
        return self._hold

    def wait_for(self, method: str, ending: str, within_s: float = 30) -> None:
        """Wait until the next matching request has been answered."""
        while True:
            found, path = self._done.get(timeout=within_s)
            if found == method and path.endswith(ending):
                return

    def break_off_after(self, method: str, ending: str) -> None:
        """Break all connections once the next matching request has been answered."""
        self._fatal = (method, ending)

    def wait_for_break(self, within_s: float = 30) -> None:
        assert self._broke.wait(within_s), f"no {self._fatal} within {within_s} s"

    def break_off(self) -> None:
        """Cut every connection, and each new one, until `mend`."""
        self._broke.set()
        self._cut_all()

    def mend(self) -> None:
        self._fatal = None
        self._broke.clear()

    def stall(self) -> None:
        """From now on accept requests without an answer, until the proxy is closed."""
        self.strike(Some(ill=Ill.SILENCE, at=1, times=1 << 30))

    def strike_copies(self, ill: Ill) -> None:
        """From now on, disturb every copy of an object in this way."""
        self.strike(Some(ill=ill, at=1, times=1 << 30, aim=Aim.COPY))

    def strike_completions(self, ill: Ill, *, times: int) -> None:
        """Disturb the next completions of multipart uploads in this way."""
        self.strike(Some(ill=ill, at=1, times=times, aim=Aim.COMPLETION))

    def heard(
        self, method: str, path: str, headers: Mapping[str, str], size: int
    ) -> tuple[Ill | None, Moment | None]:
        """Count a request with a body of this size; returns its disturbance, and the action at
        it."""
        given = {name.lower(): value for name, value in headers.items()}
        key = _ACCESS_KEY.search(given.get("authorization", ""))
        with self._lock:
            self.log.append(f"{method} {path}")
            self.signed.append("authorization" in given)
            self.received += size
            request = Request(
                number=len(self.log),
                method=method,
                path=path,
                access_key=key[1] if key else "",
                is_copy="x-amz-copy-source" in given,
            )
            moment = self._moment
            if moment is not None and moment.at == request.number:
                self.struck.append(str(request))
                return None, moment
            hold = self._hold
            if hold is not None and hold.takes(method, path.partition("?")[0]):
                return None, Moment(at=0, is_performed=hold.is_performed, act=hold.keep)
            ill = self._plan.befalls(request)
            if ill is not None:
                self.struck.append(str(request))
                self.injected[ill] += 1
            return ill, None

    def has_answered(self, method: str, path: str) -> None:
        found = method, path.partition("?")[0]
        self.answered.append(found)
        self._done.put(found)
        if self._fatal and method == self._fatal[0] and found[1].endswith(self._fatal[1]):
            self.break_off()

    def vanish(self) -> None:
        """Refuse connections, and cut existing ones, until `come_back`."""
        self.is_gone = True
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._cut_all()

    def come_back(self) -> None:
        self._server, self._thread = self._listen(self.port)
        self.is_gone = False

    def close(self) -> None:
        if not self.is_gone:
            self.vanish()

    def met(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.add(connection)

    def left(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.discard(connection)

    def _cut_all(self) -> None:
        if self._hold is not None:
            self._hold.let_go()
        with self._lock:
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(
        self, address: tuple[str, int], handler: type[_Handler], broke: threading.Event
    ) -> None:
        super().__init__(address, handler)
        self._broke = broke

    def verify_request(self, request: object, client_address: object) -> bool:
        """Whether the connection is not closed at once."""
        return not self._broke.is_set()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores clients that close the connection."""


class _Handler(http.server.BaseHTTPRequestHandler):
    owner: Proxy
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.owner.met(self.connection)

    def finish(self) -> None:
        self.owner.left(self.connection)
        super().finish()

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        ill, moment = self.owner.heard(self.command, self.path, dict(self.headers), len(body))
        if moment is not None:
            self._live(moment, body)
        elif ill is None:
            self._pass_on(body)
        else:
            self._strike(ill, body)

    do_PUT = do_POST = do_DELETE = do_HEAD = do_GET

    def _live(self, moment: Moment, body: bytes) -> None:
        if not moment.is_performed:
            if moment.act():
                self._pass_on(body)
            else:
                self._break_off()
            return
        answer, content = self._ask(body)
        if moment.act():
            self._answer(answer, content, sent=len(content))
        else:
            self._break_off()

    def _strike(self, ill: Ill, body: bytes) -> None:
        match ill:
            case Ill.LATENCY:
                threading.Event().wait(_DELAY_S)
                self._pass_on(body)
            case Ill.SILENCE:
                self._wait_for_the_end()
            case Ill.SILENCE_AFTER:
                self._ask(body)
                self._wait_for_the_end()
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
                self._pretend(body)
            case _:
                self._refuse(*_CODES[ill])

    def _wait_for_the_end(self) -> None:
        """Wait until the client gives up, or the proxy is closed."""
        while self.connection.recv(1 << 16):
            continue
        self.close_connection = True

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
        self.owner.has_answered(self.command, self.path)

    def _refuse(self, status: int, code: str) -> None:
        content = f"<Error><Code>{code}</Code><Message>by the test</Message></Error>".encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _pretend(self, body: bytes) -> None:
        etag = f'"{hashlib.md5(body).hexdigest()}"'
        told = (
            f"<CompleteMultipartUploadResult><ETag>{etag}</ETag></CompleteMultipartUploadResult>"
        )
        content = told.encode() if self.command == "POST" else b""
        self.send_response(200)
        self.send_header("ETag", etag)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _break_off(self) -> None:
        """Close with a reset: data in the buffers does not arrive, either."""
        self.close_connection = True
        with suppress(OSError):
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()

    def log_message(self, *_: object) -> None:
        """Prints nothing: the proxy has its own log."""
