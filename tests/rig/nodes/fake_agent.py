"""An agent that knows no trial: it reads its invitation, says where it runs, and obeys a test.

Uses the standard library only, as a node may have another Python. The invitation is one line:
`{"ticket": ..., "secret": ..., "address": [host, port] or null}`. It answers with one line, over
its stdin and stdout if there is no address, and ends with its connection.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from typing import BinaryIO


def links(address: list[object] | None) -> tuple[BinaryIO, BinaryIO]:
    if address is None:
        return sys.stdin.buffer, sys.stdout.buffer
    connected = socket.create_connection((str(address[0]), int(str(address[1]))), timeout=60)
    connected.settimeout(None)
    stream = connected.makefile("rwb")
    return stream, stream  # type: ignore[return-value]


def main() -> None:
    invitation = json.loads(sys.stdin.buffer.readline())
    print("the fake agent begins", file=sys.stderr, flush=True)
    reads, writes = links(invitation["address"])
    facts = {
        "ticket": invitation["ticket"],
        "secret": invitation["secret"],
        "pid": os.getpid(),
        "hostname": socket.gethostname(),
        "version": list(sys.version_info[:2]),
        "cuda": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "cpus": os.environ.get("SLURM_CPUS_ON_NODE"),
        "leaves_in_s": os.environ.get("HOLDFAST_LEAVES_IN_S"),
    }

    def tell(line: str) -> None:
        writes.write(line.encode() + b"\n")
        writes.flush()

    tell(json.dumps(facts))
    for line in reads:
        order, *words = line.decode().split()
        if order == "exit":
            print(*words[1:], file=sys.stderr, flush=True)
            os._exit(int(words[0]))
        elif order == "echo":
            tell(line.decode().strip())
        elif order == "trap":  # tell of SIGTERM, and go on
            signal.signal(signal.SIGTERM, lambda *_: tell("terminated"))
            tell(order)
        elif order == "ignore":  # the end of the connection, and signals
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            tell(order)
            while True:
                time.sleep(60)


main()
