"""A proxy between an experiment and its storage, for tests."""

from __future__ import annotations

import queue
import re
import socket
import threading
from contextlib import suppress

from tests.rig.workers.processes import PATIENCE_S


class Hold:
    """A request that a proxy keeps."""

    def __init__(self, method: str, pattern: re.Pattern[str], *, is_performed: bool) -> None:
        self._wanted = (method, pattern, is_performed)
        self._met, self._ended = threading.Event(), threading.Event()

    def wait(self, within_s: float = PATIENCE_S) -> None:
        """Wait until the proxy has it."""
        assert self._met.wait(within_s), f"no {self._wanted[0]} of {self._wanted[1].pattern}"

    def let_go(self) -> None:
        self._ended.set()

    def keeps(self, method: str, path: str, *, is_answer: bool) -> bool:
        """Whether this is the request, once it is let go; others pass."""
        wanted, pattern, is_performed = self._wanted
        is_it = (method, is_answer) == (wanted, is_performed) and pattern.search(path)
        if not is_it or self._met.is_set():
            return False
        self._met.set()
        self._ended.wait()
        return True


class Proxy:
    """A proxy that logs requests, and can break connections. It listens at `host`."""

    def __init__(self, endpoint: str, host: str = "127.0.0.1") -> None:
        name, _, port = endpoint.removeprefix("http://").partition(":")
        self._target = (name, int(port))
        self._done: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self._open: set[socket.socket] = set()
        self._is_broken = False
        self._broke = threading.Event()
        self._fatal: tuple[str, str] | None = None
        self._hold: Hold | None = None
        # For each request, whether it was signed.
        self.signed: list[bool] = []
        # Each method and path, in the order of the answers.
        self.answered: list[tuple[str, str]] = []
        self._listener = socket.create_server((host, 0))
        self.endpoint = f"http://{host}:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def wait_for(self, method: str, ending: str, within_s: float = 30) -> None:
        """Wait until the next matching request has been answered."""
        while True:
            found, path = self._done.get(timeout=within_s)
            if found == method and path.endswith(ending):
                return

    def break_off_after(self, method: str, ending: str) -> None:
        """Break the connection once the next matching request has been answered."""
        self._fatal = (method, ending)

    def wait_for_break(self, within_s: float = 30) -> None:
        if not self._broke.wait(within_s):
            raise AssertionError(f"no {self._fatal} within {within_s} s")

    def hold(self, method: str, pattern: str, *, is_performed: bool) -> Hold:
        """Keep the next request whose path has this pattern, or its answer if it `is_performed`,
        until `let_go` breaks its connection."""
        self._hold = Hold(method, re.compile(pattern), is_performed=is_performed)
        return self._hold

    def break_off(self) -> None:
        """Cut every connection, and each new one, until `mend`."""
        self._is_broken = True
        self._broke.set()
        if self._hold is not None:
            self._hold.let_go()
        for sock in list(self._open):
            self._cut(sock)

    def mend(self) -> None:
        self._is_broken = False
        self._broke.clear()
        self._fatal = None

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
                for sock in (client, server):
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
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
                    self.signed.append(b"\r\nauthorization:" in data.lower())
                if asked and self._hold and self._hold.keeps(*asked[0], is_answer=not is_request):
                    break
                target.sendall(data)
                # An interim answer only asks for the body.
                if not is_request and asked and not data.startswith(b"HTTP/1.1 100"):
                    self._answered(*asked.pop())
        for sock in (source, target):
            self._cut(sock)

    def _answered(self, method: str, path: str) -> None:
        self.answered.append((method, path))
        self._done.put((method, path))
        if self._fatal and method == self._fatal[0] and path.endswith(self._fatal[1]):
            self.break_off()

    def _cut(self, sock: socket.socket) -> None:
        self._open.discard(sock)
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        sock.close()


_REQUEST = re.compile(rb"([A-Z]+) ([^ ?]+)[^ ]* HTTP/1.1\r\n")
