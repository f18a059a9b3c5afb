"""Round trips between two processes through a third one that does nothing else:
`bare_relay.py COUNT`.

One asks with a message of a report's size and waits for the answer. The relay passes both on, over
mutual TLS 1.3 on loopback. All of them block in `recv`. Prints the seconds of a median round trip.
"""

import json
import os
import socket
import sys
import time
from collections.abc import Callable
from statistics import median

import msgpack

from holdfast.runtime.fleet.authority import Authority
from holdfast.runtime.fleet.tls import SERVER_NAME, Credentials, tls_context

count = int(sys.argv[1])
REPORT = ["report", 1, 12_345, {"loss": 6172.5, "acc": 0.25}, 1.7e9, 1e-4, 1.5, None]
REPLY = ["reply", "continue"]
NAME = "worker-1"


def answer(listening: socket.socket, own: Credentials) -> None:
    """The controller's place."""
    sock, _ = listening.accept()
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with tls_context(own, is_server=True).wrap_socket(sock, server_side=True) as tls:
        while data := tls.recv(65_536):
            assert msgpack.unpackb(data)[2][0] == "report"
            tls.sendall(msgpack.packb(["send", NAME, REPLY]))


def relay(sock: socket.socket, port: int, own: Credentials) -> None:
    """The agent's place."""
    called = socket.create_connection(("127.0.0.1", port))
    called.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    context = tls_context(own, is_server=False)
    with context.wrap_socket(called, server_hostname=SERVER_NAME) as tls:
        while data := sock.recv(65_536):
            tls.sendall(msgpack.packb(["from", NAME, msgpack.unpackb(data)]))
            sock.sendall(msgpack.packb(msgpack.unpackb(tls.recv(65_536))[2]))


def ask(sock: socket.socket) -> float:
    """The worker's place."""
    spans = []
    for _ in range(count):
        began_s = time.perf_counter()
        sock.sendall(msgpack.packb(REPORT))
        msgpack.unpackb(sock.recv(65_536))
        spans.append(time.perf_counter() - began_s)
    return median(spans)


def forked(run: Callable[[], object]) -> int:
    pid = os.fork()
    if pid == 0:
        run()
        os._exit(0)
    return pid


def main() -> None:
    authority = Authority()
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    ours, theirs = socket.socketpair()

    def agent() -> None:
        ours.close()
        relay(theirs, port, authority.agent("agent"))

    between = forked(agent)
    theirs.close()

    def controls() -> None:
        ours.close()
        answer(listening, authority.controller())

    controller = forked(controls)
    print(json.dumps({"round_trip_s": ask(ours)}))
    ours.close()
    for pid in (between, controller):
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
