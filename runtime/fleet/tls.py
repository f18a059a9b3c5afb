"""TLS 1.3 between controller and agent, without a socket: both ends show a certificate.

The bytes of a connection go through `TlsCodec`, so a connection over TLS and one over a pipe are
read and written by the same code.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.runtime.errors import WireError

# The name in the controller's certificate, wherever it runs.
SERVER_NAME = "controller.holdfast.invalid"
# The largest TLS record: OpenSSL returns one at a time.
_RECORD_BYTES = 1 << 14


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What one end needs, as PEM: the authority that it trusts, its own certificate and key."""

    authority: bytes
    certificate: bytes
    key: bytes


def tls_context(own: Credentials, *, is_server: bool) -> ssl.SSLContext:
    """A context that refuses a peer without a certificate of the authority. Raises ssl.SSLError
    for invalid credentials."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    if is_server:
        context.num_tickets = 0  # no agent connects twice
    context.load_verify_locations(cadata=own.authority.decode("ascii"))
    with _as_file(own.certificate + own.key) as path:
        context.load_cert_chain(path)
    return context


@contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """A file with `data` that no other user can read: OpenSSL takes keys from files only. On Linux
    it is in memory and has no name."""
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        fd, path = os.memfd_create("holdfast"), ""
    else:
        fd, path = tempfile.mkstemp()
    try:
        os.write(fd, data)
        yield path or f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)
        if path:
            os.unlink(path)


class TlsCodec:
    """One end of a TLS connection. What is sent waits for `take`, and for the handshake: then it
    is encrypted together."""

    def __init__(self, context: ssl.SSLContext, *, is_server: bool) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=is_server,
            server_hostname=None if is_server else SERVER_NAME,
        )
        self._is_ready = False
        self._waiting: list[bytes] = []

    @property
    def peer(self) -> str:
        """The name in the certificate of the other end; "" before the handshake is complete."""
        if not self._is_ready:
            return ""
        certificate: dict[str, Any] = self._tls.getpeercert() or {}
        subject = certificate.get("subject", ())
        names = [value for part in subject for key, value in part if key == "commonName"]
        return str(names[0]) if names else ""

    def receive(self, data: bytes) -> bytes:
        """The plain bytes in `data`. Raises WireError."""
        self._incoming.write(data)
        parts = []
        try:
            if not self._is_ready:
                self._shake_hands()
            # To read where nothing is left would raise an error, which takes as long as reading.
            while self._is_ready and (self._incoming.pending or self._tls.pending()):
                parts.append(self._tls.read(_RECORD_BYTES))
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass  # a part of a record is left, or the other end has closed
        except ssl.SSLError as error:
            raise WireError(f"TLS: {error.reason or error}") from error
        return b"".join(parts)

    def send(self, data: bytes) -> None:
        self._waiting.append(data)

    @property
    def has_more(self) -> bool:
        return bool(self._waiting) or self._outgoing.pending > 0 or not self._is_ready

    def take(self) -> bytes:
        """What must be written to the connection now."""
        if not self._is_ready:
            with suppress(ssl.SSLError):  # `receive` has raised it, and an alert is to be sent
                self._shake_hands()
        if self._is_ready and self._waiting:
            self._tls.write(b"".join(self._waiting))
            self._waiting.clear()
        return self._outgoing.read()

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return
        self._is_ready = True
