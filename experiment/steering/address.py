"""Where the socket of a run is, and who is at its other end."""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.experiment.folder.layout import CONTROL

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
