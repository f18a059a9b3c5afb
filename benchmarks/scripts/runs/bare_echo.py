"""Round trips between two processes that do nothing else: `bare_echo.py COUNT`.

One asks with a message of a report's size and waits for the answer; both block in `recv`.
"""

import json
import os
import socket
import sys
import time

import msgpack

count = int(sys.argv[1])
REPORT = ["report", 1, 12_345, {"loss": 6172.5, "acc": 0.25}, 1.7e9, 1e-4, 1.5, None]


def answer(sock: socket.socket) -> None:
    while data := sock.recv(65_536):
        message = msgpack.unpackb(data)
        assert message[0] == "report"
        sock.sendall(msgpack.packb(["reply", "continue"]))


def ask(sock: socket.socket) -> float:
    """Round trips per second."""
    began_s = time.monotonic()
    for _ in range(count):
        sock.sendall(msgpack.packb(REPORT))
        msgpack.unpackb(sock.recv(65_536))
    return count / (time.monotonic() - began_s)


def main() -> None:
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        answer(theirs)
        os._exit(0)
    theirs.close()
    print(json.dumps({"rate": ask(ours)}))
    ours.close()
    os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
