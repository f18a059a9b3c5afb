"""The answers to a report."""

from __future__ import annotations

from enum import StrEnum


class Verdict(StrEnum):
    """The answer to `report()`. On PAUSE and SAVE a class trainable saves a checkpoint."""

    CONTINUE = "continue"
    STOP = "stop"
    PAUSE = "pause"
    SAVE = "save"
