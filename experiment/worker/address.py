"""The address of this machine."""

from __future__ import annotations

import socket


def node_ip() -> str:
    """This machine's address on its default route; loopback if there is none.

    Connecting a datagram socket sends nothing: it asks the kernel which address it would use.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            address: str = probe.getsockname()[0]
        except OSError:
            return "127.0.0.1"
    return address
