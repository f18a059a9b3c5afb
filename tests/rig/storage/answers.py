"""Answers of an uploader as they travel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.schema import to_row
from holdfast.syncer.uploader.messages import Answer


def rows(into: list[Any]) -> Callable[[Answer], None]:
    """A receiver of answers, which adds each as a row."""
    return lambda answer: into.append(to_row(answer))
