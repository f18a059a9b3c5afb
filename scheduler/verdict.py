"""What a worker is told when it has reported."""

from __future__ import annotations

from enum import StrEnum


class Verdict(StrEnum):
    """What `report()` answers. A class trainable saves itself on PAUSE and SAVE."""

    CONTINUE = "continue"
    STOP = "stop"
    PAUSE = "pause"
    SAVE = "save"
