"""The run's side of the control socket in the experiment's folder: takes its own user's orders.

One order for each connection. Whoever sends something else, or nothing, is dropped with an answer.
Other users cannot connect (mode 0600), and the kernel says who the peer is.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
import struct
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.experiment.callbacks.thread import Tell
from holdfast.experiment.folder.layout import CONTROL
from holdfast.experiment.steering.orders import (
    LARGEST_FRAME,
    InvalidOrder,
    Order,
    decode,
    via_of,
)
from holdfast.forked import close_in_children
from holdfast.names import printable, shown
from holdfast.runtime.errors import WireError
from holdfast.runtime.tasks import TaskScope
from holdfast.runtime.transport import CHUNK_BYTES
from holdfast.runtime.wire import Decoder, Message, encode
from holdfast.syncer.files import threads

# The kernel's limit is 108 bytes on Linux and 104 on macOS, with the zero byte at the end.
_LONGEST_BYTES = 103
_DESCRIPTORS = "/proc/self/fd"
# `struct ucred`: process, user, group.
_CRED = struct.Struct("3i")
# From macOS's sys/un.h and sys/ucred.h: `struct xucred` begins with a version and the user.
_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED_BYTES = 0, 1, 76
_XUCRED = struct.Struct("2I")


def address_in(folder: int, path: str) -> str:
    """The address of the socket in an open folder, whose path is `path`.

    Through the descriptor the path may have any length. Raises OSError where that is impossible
    and the path is too long.
    """
    if os.path.isdir(f"{_DESCRIPTORS}/{folder}"):
        return f"{_DESCRIPTORS}/{folder}/{CONTROL}"
    address = os.path.join(path, CONTROL)
    if len(os.fsencode(address)) > _LONGEST_BYTES:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), address)
    return address


@contextmanager
def address_of_entry(folder: int, path: str) -> Iterator[str]:
    """The address of what has the socket's name in an open folder now, to connect to.

    On Linux a link that took its place meanwhile is refused and not followed: it may lead to a
    socket of root. Raises OSError.
    """
    if sys.platform != "linux" or not os.path.isdir(f"{_DESCRIPTORS}/{folder}"):
        yield address_in(folder, path)
        return
    entry = os.open(CONTROL, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        if not stat.S_ISSOCK(os.fstat(entry).st_mode):
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        yield f"{_DESCRIPTORS}/{entry}"
    finally:
        os.close(entry)


def peer_user(sock: socket.socket) -> int:
    """The user at the other end, from the kernel. Raises OSError if it does not say."""
    if sys.platform == "linux":
        found = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CRED.size)
        return int(_CRED.unpack(found)[1])
    else:
        found = sock.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED_BYTES)
        return int(_XUCRED.unpack_from(found)[1])


def name_of(user: int) -> str:
    """The user's name; the number of one without a name."""
    import pwd

    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"


DEADLINE_S = 10.0
MOST_CONNECTIONS = 16
# After an error of the kernel, such as too many open files.
_REST_S = 1.0

Perform = Callable[[Order, str], Awaitable[str]]
"""Performs an order of a person, whose name is the second argument. Returns a sentence, or raises
`Refused` with one."""


class Refused(Exception):
    """The run does not perform the order: the message is a sentence for the person."""


class ControlSocket:
    """The socket of one run, in its folder until `close`."""

    def __init__(self, folder: Path, perform: Perform, *, deadline_s: float = DEADLINE_S) -> None:
        """The caller holds the experiment's lock, so that a socket which is there is of a run that
        was killed. Raises OSError."""
        self._perform, self._deadline_s = perform, deadline_s
        self._peers: set[socket.socket] = set()
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._facts: os.stat_result | None = None
        try:
            self._bind(folder)
        except BaseException:
            self.close()
            raise
        close_in_children(self)

    async def serve(self, tasks: TaskScope) -> None:
        """Answer until it is cancelled. Each peer gets a task of its own."""
        loop = asyncio.get_running_loop()
        while self._folder >= 0:
            try:
                peer, _ = await loop.sock_accept(self._socket)
            except OSError:  # the kernel keeps the peer waiting
                await asyncio.sleep(_REST_S)
                continue
            if len(self._peers) < MOST_CONNECTIONS:
                self._peers.add(peer)
                tasks.start(self._attend(peer))
            else:
                _drop(peer, f"{MOST_CONNECTIONS} orders wait already. Try again later")

    def close(self) -> None:
        """Remove the socket from the folder, wherever that is now."""
        folder, self._folder = self._folder, -1
        self._socket.close()
        if folder >= 0:
            with suppress(OSError):  # the folder is gone, or cannot be written any more
                if self._facts and os.path.samestat(_look(folder), self._facts):
                    os.unlink(CONTROL, dir_fd=folder)
            os.close(folder)

    def close_in_child(self) -> None:
        """A forked child neither answers nor removes anything."""
        folder, self._folder = self._folder, -1
        self._socket.close()
        for peer in self._peers:
            peer.close()
        if folder >= 0:
            os.close(folder)

    def _bind(self, folder: Path) -> None:
        _make_room(self._folder, folder)
        address = address_in(self._folder, str(folder))
        with suppress(OSError):
            # Linux gives the file this mode from its beginning. Changing the umask would change
            # it for the user's threads, too.
            os.fchmod(self._socket.fileno(), 0o600)
        self._socket.bind(address)
        self._facts = _look(self._folder)
        if stat.S_IMODE(self._facts.st_mode) != 0o600:
            os.chmod(CONTROL, 0o600, dir_fd=self._folder)
        self._socket.listen(MOST_CONNECTIONS)
        self._socket.setblocking(False)

    async def _attend(self, peer: socket.socket) -> None:
        try:
            reply = await self._reply_to(peer)
            async with asyncio.timeout(self._deadline_s):
                await asyncio.get_running_loop().sock_sendall(peer, encode(reply))
        except (OSError, TimeoutError):  # it has gone, or does not read
            return
        finally:
            self._peers.discard(peer)
            peer.close()

    async def _reply_to(self, peer: socket.socket) -> Message:
        """Raises OSError if the peer has gone."""
        user = peer_user(peer)
        if user not in (0, os.geteuid()):
            ours = await threads.call(lambda: name_of(os.geteuid()))
            return ["error", f"the run is of the user {ours}: only {ours} and root can steer it"]
        try:
            async with asyncio.timeout(self._deadline_s):
                order, via = _read(await self._message(peer))
        except TimeoutError:
            return ["error", f"no order has arrived within {self._deadline_s:g} s"]
        except (InvalidOrder, WireError) as error:
            return ["error", printable(str(error))]
        if _has_gone(peer):  # it knows that it had no answer
            raise ConnectionResetError
        name = await threads.call(lambda: name_of(user))
        try:
            return ["ok", await self._perform(order, f"{name} ({via})")]
        except Refused as refusal:
            return ["error", str(refusal)]

    async def _message(self, peer: socket.socket) -> Message:
        """The first message. Raises WireError, ConnectionError."""
        decoder, loop = Decoder(LARGEST_FRAME), asyncio.get_running_loop()
        while data := await loop.sock_recv(peer, CHUNK_BYTES):
            for message in decoder.feed(data):
                return message
        raise ConnectionResetError


def keep_socket(folder: Path, perform: Perform, tasks: TaskScope, tell: Tell) -> None:
    """Take orders in this folder as long as the tasks live. Where no socket can be made, `tell`
    says so, and the run works without."""
    try:
        made = ControlSocket(folder, perform)
    except OSError as error:
        reason = error.strerror or str(error)
        where = printable(str(folder / CONTROL))
        tell(f"This run takes no orders (holdfast stop, pause, ...): {where}: {reason}", "info")
        return

    def fail(error: BaseException) -> None:
        tell(f"An order was not performed (a bug in holdfast): {error!r:.300}", "warning")

    # Exceptions of these tasks are logged; only what the machine refuses ends the run.
    serving = tasks.scope(fail)
    serving.start(made.serve(serving)).add_done_callback(lambda _: made.close())


def _read(message: Message) -> tuple[Order, str]:
    """Raises InvalidOrder."""
    if len(message) != 3 or message[0] != "order":
        raise InvalidOrder(f"an order is ['order', VIA, TABLE], not {shown(message)}")
    return decode(message[2]), via_of(message[1])


def _make_room(descriptor: int, folder: Path) -> None:
    """Remove the socket of a killed run. Raises OSError for anything else of that name."""
    try:
        found = _look(descriptor)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.geteuid():
        fact = "something else has the name of the run's socket. Remove it"
        raise FileExistsError(errno.EEXIST, fact, str(folder / CONTROL))
    os.unlink(CONTROL, dir_fd=descriptor)


def _look(descriptor: int) -> os.stat_result:
    return os.stat(CONTROL, dir_fd=descriptor, follow_symlinks=False)


def _has_gone(peer: socket.socket) -> bool:
    try:
        return not peer.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False


def _drop(peer: socket.socket, text: str) -> None:
    with peer, suppress(OSError):
        peer.send(encode(["error", text]))
