"""The bytes of a connection over a pipe, after a first line by which the controller knows where
they begin: a login shell may print anything before it."""

from __future__ import annotations

from holdfast.runtime.errors import WireError

MAGIC = b"\x00holdfast agent 1\x00\n"
MOST_NOISE = 1 << 16
_SHOWN = 200


class AgentBanner:
    """The agent's end: begins with the line."""

    def __init__(self) -> None:
        self._waiting = [MAGIC]

    def receive(self, data: bytes) -> bytes:
        return data

    def send(self, data: bytes) -> None:
        self._waiting.append(data)

    @property
    def has_more(self) -> bool:
        return bool(self._waiting)

    def take(self) -> bytes:
        data = b"".join(self._waiting)
        self._waiting.clear()
        return data


class AfterBanner(AgentBanner):
    """The controller's end: skips at most `MOST_NOISE` bytes before the line."""

    def __init__(self) -> None:
        self._noise: bytes | None = b""
        self._waiting = []

    def receive(self, data: bytes) -> bytes:
        """Raises WireError for too much noise."""
        if self._noise is None:
            return data
        noise, magic, rest = (self._noise + data).partition(MAGIC)
        if len(noise) > MOST_NOISE:
            raise WireError(f"no agent answered, but: {noise[:_SHOWN]!r}")
        self._noise = None if magic else noise
        return rest
