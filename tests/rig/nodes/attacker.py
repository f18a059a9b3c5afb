"""A program that attacks a fleet's port: `python -m tests.rig.nodes.attacker ATTACK`.

It gets the invitation of an agent on stdin. Attacks from outside use its address only; the others
are those of an agent that was admitted.
"""

from __future__ import annotations

import os
import socket
import ssl
import sys
from collections.abc import Callable
from contextlib import suppress

from holdfast.runtime.fleet.handshake import Invited, decode_invitation
from holdfast.runtime.fleet.tls import SERVER_NAME, tls_context
from holdfast.runtime.wire import LARGEST_FROM_WORKER, encode
from tests.rig.nodes.fleets import hello

_CONNECTIONS = 300
_MESSAGES = 50_000


def silence(invited: Invited) -> None:
    """Many connections that say nothing, until the controller has ended them all."""
    kept = [_connected(invited) for _ in range(_CONNECTIONS)]
    for sock in kept:
        with suppress(OSError):
            sock.recv(1)


def garbage(invited: Invited) -> None:
    for _ in range(_CONNECTIONS):
        with suppress(OSError), _connected(invited) as sock:
            sock.sendall(os.urandom(1 << 14))


def no_certificate(invited: Invited) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    for _ in range(_CONNECTIONS):
        with suppress(OSError), _connected(invited) as sock:
            context.wrap_socket(sock).recv(1)


def beats(invited: Invited) -> None:
    """Beats without a pause; no answer is read."""
    _send(invited, encode(["heartbeat", 5]) * _MESSAGES)


def warnings(invited: Invited) -> None:
    _send(invited, encode(["warned", "mind the gap"]) * _MESSAGES)


def strangers(invited: Invited) -> None:
    """Messages of workers that do not exist."""
    _send(invited, encode(["from", "nobody", ["report", 1, {"loss": 0.5}]]) * _MESSAGES)


def lists(invited: Invited) -> None:
    """A frame that takes 56 times as much memory, and is a message."""
    count = LARGEST_FROM_WORKER - 100
    body = b"\x93\xa4from\xa1w\xdd" + count.to_bytes(4, "big") + b"\x90" * count
    _send(invited, len(body).to_bytes(4, "big") + body, until_ended=True)


def no_list(invited: Invited) -> None:
    """A large frame whose text would fill an error message."""
    body = b"\xdf" + (1 << 20).to_bytes(4, "big")
    body += b"".join(b"\xce" + number.to_bytes(4, "big") + b"\x00" for number in range(1 << 20))
    _send(invited, len(body).to_bytes(4, "big") + body, until_ended=True)


def _send(invited: Invited, data: bytes, *, until_ended: bool = False) -> None:
    """Join as a node, and send this; with `until_ended`, wait until the controller ends the
    connection."""
    assert invited.credentials is not None
    context = tls_context(invited.credentials, is_server=False)
    with context.wrap_socket(_connected(invited), server_hostname=SERVER_NAME) as sock:
        sock.sendall(
            encode(["hello", hello(invited.ticket, invited.token)]) + encode(["loaded", ""])
        )
        sock.recv(1)  # it was admitted
        with suppress(OSError):
            sock.sendall(data)
            while until_ended and sock.recv(1 << 16):
                pass


def _connected(invited: Invited) -> socket.socket:
    return socket.create_connection((invited.address, invited.port))


ATTACKS: dict[str, Callable[[Invited], None]] = {
    made.__name__: made
    for made in (silence, garbage, no_certificate, beats, warnings, strangers, lists, no_list)
}

if __name__ == "__main__":
    ATTACKS[sys.argv[1]](decode_invitation(sys.stdin.buffer.read()))
