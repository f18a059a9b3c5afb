"""Stands for an agent in tests of Slurm's engine: it connects, says where it is, and obeys.

It reads its invitation from stdin: the address of the test, and its ticket. It ends with its
connection. Over a pipe, the address is empty.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from typing import IO, cast

_CONNECT_S = 5.0


def main() -> None:
    address, port, ticket = _invitation()
    reads: IO[bytes] = os.fdopen(0, "rb", 0)
    writes: IO[bytes] = os.fdopen(1, "wb", 0)
    if address != "-":
        reads = writes = _connected(address, int(port))
    signal.signal(signal.SIGTERM, lambda *_: _say(writes, "terminated"))
    cpus = os.environ.get("SLURM_CPUS_ON_NODE")
    _say(writes, f"joined {ticket} {os.uname().nodename} {os.getpid()} {cpus}")
    while order := _line(reads):
        _obey(order)


def _invitation() -> list[str]:
    with os.fdopen(0, "rb", 0, closefd=False) as stdin:
        return _line(stdin).split()


def _connected(address: str, port: int) -> IO[bytes]:
    try:
        connection = socket.create_connection((address, port), _CONNECT_S)
    except OSError as error:
        sys.exit(f"cannot reach the controller at {address}:{port}: {error}")
    connection.settimeout(None)
    return cast(IO[bytes], connection.makefile("rwb", 0))


def _obey(order: str) -> None:
    name, code = order.split()
    assert name == "exit"
    print("oh no", file=sys.stderr, flush=True)
    os._exit(int(code))


def _say(writes: IO[bytes], text: str) -> None:
    writes.write(f"{text}\n".encode())


def _line(reads: IO[bytes]) -> str:
    found = b""
    while not found.endswith(b"\n") and (byte := reads.read(1)):
        found += byte
    return found.decode().strip()


if __name__ == "__main__":
    main()
