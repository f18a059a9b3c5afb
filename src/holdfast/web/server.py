"""The server's process: its sockets, its loop and its end."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import field
from itertools import count
from typing import Final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.settings import Settings
from holdfast.results.page.place import Place
from holdfast.runtime.tasks import RunTasks
from holdfast.text.errors import named
from holdfast.trial.errors import InvalidConfig
from holdfast.web.answers import Gate
from holdfast.web.app import Page, made_app
from holdfast.web.following import Following
from holdfast.web.security import LARGEST_HEAD, Access, PortTaken

DEFAULT_PORT: Final = 8765
LOOPBACK: Final = "127.0.0.1"
# After the default port, if that is taken; then any free one.
_NEXT_PORTS: Final = 50
_WAITING: Final = 128
_COLLECTED_AFTER: Final = 50_000
_SWITCH_S: Final = 0.0005
# How long the end may take: to read the last state, and to send it.
_LAST_LOOK_S: Final = 0.5
_END_S: Final = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSettings:
    """The place that a server shows, and its address.

    `path` and `may_be_missing`: as for `Place`. `port`: None for the default one, or the next that
    is free. `base`: as `base_of` returns it. `names`: other hosts by which browsers may call this
    server.
    """

    path: str | None
    host: str = LOOPBACK
    port: int | None = None
    base: str = "/"
    names: tuple[str, ...] = ()
    may_be_missing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The address of a server. Whoever has the `token` can read and steer the experiments."""

    host: str
    port: int
    base: str
    token: str = field(repr=False)

    @property
    def origin(self) -> str:
        """The address without a path."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{name}:{self.port}"

    @property
    def url(self) -> str:
        """The URL that a person opens."""
        return f"{self.origin}{self.base}?token={self.token}"

    @property
    def frame_url(self) -> str:
        """The URL of a frame in another server's page, where a browser sends no cookie."""
        return f"{self.origin}{self.base}frame/{self.token}/"


class WebServer:
    """One server, bound to its port when it is made. Call `run` once.

    `tell` gets one line for each failure that is a bug.
    """

    def __init__(self, settings: WebSettings, tell: Callable[[str], None]) -> None:
        """Raises ExperimentNotFound, InvalidLocation, StorageError, PortTaken, InvalidConfig."""
        self.place = Place(
            settings.path,
            Settings.read(os.environ),
            os.environ,
            may_be_missing=settings.may_be_missing,
        )
        self._socket = _bound(settings.host, settings.port)
        port, host, base = self._socket.getsockname()[1], _name_of(settings.host), settings.base
        self._access = Access(port=port, base=base, names=[settings.host, host, *settings.names])
        self.address = Address(host=host, port=port, base=base, token=self._access.token)
        self._tell = tell
        self._ended = asyncio.Event()
        self._looks_last = False
        self._following: Following | None = None

    def run(
        self,
        on_start: Callable[[asyncio.AbstractEventLoop], None],
        on_opened: Callable[[], None] = lambda: None,
    ) -> None:
        """Serve until `end`. `on_start` is called in the loop when browsers can connect, and
        `on_opened` when a server of one experiment has read it."""
        import uvloop

        # The trials of a large experiment are a million objects, and the collector would visit
        # them several times while they are read: a tenth of the time to the first page.
        gc.set_threshold(_COLLECTED_AFTER, *gc.get_threshold()[1:])
        # The loop sends a browser the page's 36 files while another thread reads the experiment,
        # and would wait 5 ms for it, several times for each.
        sys.setswitchinterval(_SWITCH_S)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._run(on_start, on_opened))

    @property
    def is_watched(self) -> bool:
        """True while a browser has a stream open."""
        return self._following is not None and self._following.is_watched

    def end(self, *, last_look: bool = False) -> None:
        """Let `run` return within a second, also if streams are open; with a `last_look`, these
        send the last state first. Called in the loop."""
        self._looks_last = last_look
        self._ended.set()

    async def _run(
        self,
        on_start: Callable[[asyncio.AbstractEventLoop], None],
        on_opened: Callable[[], None],
    ) -> None:
        async with RunTasks() as tasks:
            following = self._following = Following(self.place, tasks.scope(self._on_bug))
            page = Page(following)
            app = made_app(page, self._access, self._tell)
            server = _Server(_config(app), lambda: on_start(asyncio.get_running_loop()))
            ending = tasks.start(self._end(following, server))
            tasks.start(_opened(following, on_opened))
            try:
                await server.serve([self._socket])
            finally:
                server.has_served.set()
                self._ended.set()
                self.place.close()
            await ending
        if tasks.fault is not None:
            raise tasks.fault

    async def _end(self, following: Following, server: _Server) -> None:
        """Let streams end, and then cut what is left."""
        await self._ended.wait()
        if self._looks_last:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAST_LOOK_S):
                    await following.look_a_last_time()
        following.end()
        server.should_exit = True
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_S):
                await server.has_served.wait()
        server.cut()

    def _on_bug(self, error: BaseException) -> None:
        self._tell(f"following an experiment failed: {named(error)} (a bug in holdfast)")


async def _opened(following: Following, on_opened: Callable[[], None]) -> None:
    await following.open_single()
    on_opened()


class _Server(uvicorn.Server):
    """Leaves signals to the caller of `WebServer`."""

    def __init__(self, config: uvicorn.Config, on_start: Callable[[], None]) -> None:
        super().__init__(config)
        self.has_served = asyncio.Event()
        self._on_start = on_start

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_start()

    def cut(self) -> None:
        """End all connections with what they have not sent, and all requests."""
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        for task in list(self.server_state.tasks):
            task.cancel()


def _config(app: Gate) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=LimitedConnection,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="critical",  # a URL may have the token; the page reports failures itself
        access_log=False,
        proxy_headers=False,  # any client can send them
        server_header=False,
        backlog=_WAITING,
        h11_max_incomplete_event_size=LARGEST_HEAD,
    )


def _bound(host: str, port: int | None) -> socket.socket:
    """A listening socket. Raises PortTaken, InvalidConfig."""
    ports = [*range(DEFAULT_PORT, DEFAULT_PORT + _NEXT_PORTS), 0] if port is None else [port]
    for number in ports:
        try:
            return _listening(host, number)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise InvalidConfig(f"cannot listen on {host}:{number}: {error}") from error
    raise PortTaken(
        f"port {port} of {host} is in use: pass another --port, or none for the next free one"
    )


def _listening(host: str, port: int) -> socket.socket:
    """Raises OSError."""
    kind = socket.SOCK_STREAM
    family, _, _, _, address = socket.getaddrinfo(host, port, type=kind)[0]
    made = socket.socket(family, kind)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        # At once: Linux lets two sockets bind to a port on which none listens yet.
        made.listen(_WAITING)
    except OSError:
        made.close()
        raise
    made.setblocking(False)
    return made


def _name_of(host: str) -> str:
    """The name by which a browser calls the server: an address for all interfaces is none."""
    return socket.gethostname() if host in ("0.0.0.0", "::", "") else host


# -- connections with limits: of their number, and of the time that a client may take -------------

# A page has one stream and a few requests. A browser opens at most six connections.
MOST_CONNECTIONS: Final = 128
# How long a client may take to send a request, or to read what was sent.
_SEND_S: Final = 20.0
_READ_S: Final = 30.0
_GRACE_S: Final = 0.05
_TURNS: Final = count()
_INVALID: Final = (
    b"HTTP/1.1 400 Bad Request\r\n"
    b"content-type: text/plain; charset=utf-8\r\n"
    b"x-content-type-options: nosniff\r\n"
    b"content-security-policy: default-src 'none'\r\n"
    b"referrer-policy: no-referrer\r\n"
    b"cache-control: no-store\r\n"
    b"connection: close\r\n"
    b"content-length: 40\r\n\r\n"
    b"This request is not HTTP, or too large.\n"
)


class LimitedConnection(H11Protocol):
    """A connection that ends if its client is slow, or silent while there are too many."""

    _head_timer: asyncio.TimerHandle | None = None
    _read_timer: asyncio.TimerHandle | None = None
    _silent_from = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()
        if len(self.connections) > MOST_CONNECTIONS:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_head()
        self._cancel_read()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._await_head()
        else:
            self._cancel_head()

    def pause_writing(self) -> None:
        """The client does not read: what was sent waits here."""
        super().pause_writing()
        self._read_timer = self.loop.call_later(_READ_S, self.transport.abort)

    def resume_writing(self) -> None:
        self._cancel_read()
        super().resume_writing()

    def on_response_complete(self) -> None:
        """An answer that came before the end of its request ends the connection: the client could
        send the rest for ever."""
        if self.conn.their_state is h11.SEND_BODY:
            self.transport.close()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """With the headers of every answer. Uvicorn calls it for what is not HTTP, and for a
        request whose head is too long."""
        self.transport.write(_INVALID)
        self.transport.close()

    def _make_room(self) -> None:
        """End the one that has waited longest for a request: any user of this machine can open
        connections that say nothing, and a browser says at once what it wants."""
        silent = (
            one
            for one in self.connections
            if isinstance(one, LimitedConnection) and one._head_timer is not None
        )
        # Not by the timers: the loop's clock is the same for all that connect in one turn.
        min(silent, key=lambda one: one._silent_from).transport.abort()

    def _await_head(self) -> None:
        """End the connection if the head of a request does not become complete in time."""
        if self._head_timer is None:
            self._silent_from = next(_TURNS)
            self._head_timer = self.loop.call_later(_SEND_S, self._end_soon)

    def _end_soon(self) -> None:
        """After one more look at the socket: on a busy machine, a request may be there unread. A
        browser does not repeat it on a connection that has answered none before."""
        self._head_timer = self.loop.call_later(_GRACE_S, self.transport.abort)

    def _cancel_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _cancel_read(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None
