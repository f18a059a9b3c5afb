"""Orders to an uploader, and its answers as they travel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.schema import to_row
from holdfast.syncer.uploader.messages import Answer, Commit, LookFor


def rows(into: list[Any]) -> Callable[[Answer], None]:
    """A receiver of answers, which adds each as a row."""
    return lambda answer: into.append(to_row(answer))


def commit_of(
    trial: str, index: int, folder: str, iteration: int = 1, time_total_s: float = 0.5
) -> Commit:
    """The order to commit a checkpoint."""
    return Commit(
        trial=trial, index=index, folder=folder, iteration=iteration, time_total_s=time_total_s
    )


def look_for(trial: str, index: int, folder: str) -> LookFor:
    """The order to look for a checkpoint of the first iteration."""
    return LookFor(whole=commit_of(trial, index, folder))
