"""What a worker is told when it has reported."""

from __future__ import annotations

from enum import StrEnum


class Verdict(StrEnum):
    """What `report()` answers."""

    CONTINUE = "continue"
    STOP = "stop"
    PAUSE = "pause"
