"""The same work without holdfast: `bare_waiting.py FOLDER COUNT SECONDS`.

Forks wake once a minute, send 100 bytes and wait for an answer. For each, their parent appends a
record to a log, which it forces to the disk after a second, and a row to two files of the fork.
"""

import os
import socket
import sys
import time
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector

folder, count, seconds = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
_PERIOD_S, _FORCED_S, _COLLECTED_S = 60.0, 1.0, 0.05
# Bytes of a report, of its record in the journal, and of its rows.
_REPORT, _RECORD, _ROWS = 100, 174, {"result.json": 435, "progress.csv": 138}


def wait(sock: socket.socket) -> None:
    due = time.monotonic()
    until = due + seconds
    while due < until:
        sock.sendall(bytes(_REPORT))
        sock.recv(_REPORT)
        due += _PERIOD_S
        time.sleep(max(0.0, min(due, until) - time.monotonic()))


def append(path: Path, size: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, bytes(size))
    os.close(descriptor)


def serve(selector: DefaultSelector) -> None:
    """Until all forks have ended."""
    log = os.open(folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    reported: list[int] = []
    force_at, write_at = 0.0, 0.0
    while selector.get_map():
        due = [at for at in (force_at, write_at) if at]
        for key, _ in selector.select(max(0.0, min(due) - time.monotonic()) if due else None):
            sock, number = key.data
            if not sock.recv(_REPORT):
                selector.unregister(sock)
                continue
            os.write(log, bytes(_RECORD))
            sock.sendall(b"continue")
            reported.append(number)
            now = time.monotonic()
            force_at, write_at = force_at or now + _FORCED_S, write_at or now + _COLLECTED_S
        if write_at and time.monotonic() >= write_at:
            for number in reported:
                for name, size in _ROWS.items():
                    append(folder / f"{number}.{name}", size)
            reported, write_at = [], 0.0
        if force_at and time.monotonic() >= force_at:
            os.fdatasync(log)
            force_at = 0.0


def main() -> None:
    selector = DefaultSelector()
    for number in range(count):
        ours, theirs = socket.socketpair()
        if os.fork() == 0:
            ours.close()
            wait(theirs)
            os._exit(0)
        theirs.close()
        selector.register(ours, EVENT_READ, (ours, number))
    serve(selector)


if __name__ == "__main__":
    main()
