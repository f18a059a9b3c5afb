"""Sends the lines that a trial prints to the controller's terminal: whole lines, and not too many.

The trial's file has everything. Here, a carriage return discards the text before it in its line,
because progress bars rewrite one line for hours. During a storm only the newest lines are sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from holdfast.experiment.worker.session import LONGEST_LINE

# The most that is sent at a time. During a storm the stream sends 20 times a second: a terminal
# shows less, and the controller can read this much from many workers without delay.
_MOST_LINES = 500
_MOST_CHARACTERS = 1 << 17
_MOST_KEPT_BYTES = 1 << 20


class LineEcho:
    """Turns the bytes of one stream into lines.

    `send` sends several joined lines at once, unless `is_busy`. `file` is the name of the file
    that has all of them.
    """

    def __init__(
        self, send: Callable[[str], None], is_busy: Callable[[], bool], file: str
    ) -> None:
        self._send = send
        self._is_busy = is_busy
        self._file = file
        self._rest = b""
        self._kept: deque[bytes] = deque(maxlen=_MOST_LINES)
        self._kept_bytes = self._kept_lines = 0

    def keep(self, piece: bytes) -> bool:
        if len(self._kept) == _MOST_LINES:
            self._rest = b""  # it belongs to the piece that is dropped now
        self._kept.append(piece)
        self._kept_bytes += len(piece)
        self._kept_lines += piece.count(b"\n")
        return self._kept_bytes > _MOST_KEPT_BYTES

    def hand_on(self) -> None:
        if self._is_busy():
            return
        *lines, rest = (self._rest + b"".join(self._kept)).split(b"\n")
        count = self._kept_lines
        self._kept.clear()
        self._kept_bytes = self._kept_lines = 0
        self._rest = _last_version(rest)[:LONGEST_LINE] + b"\r" * rest.endswith(b"\r")
        if lines:
            shown = _newest(lines)
            skipped = count - len(shown)
            note = [f"... {skipped:,} lines not shown here, see {self._file}"] if skipped else []
            self._send("\n".join(note + shown))

    def end_line(self) -> None:
        self.hand_on()
        if self._rest:
            self.keep(b"\n")
            self.hand_on()


def _newest(lines: list[bytes]) -> list[str]:
    """The last of `lines` that fit into one message, oldest first."""
    shown: list[str] = []
    left = _MOST_CHARACTERS
    for line in reversed(lines[-_MOST_LINES:]):
        text = _last_version(line)[: 4 * LONGEST_LINE].decode(errors="replace")[:LONGEST_LINE]
        left -= len(text) + 1
        if left < 0:
            break
        shown.append(text)
    return shown[::-1]


def _last_version(line: bytes) -> bytes:
    return line.rstrip(b"\r").rpartition(b"\r")[2]
