"""Logger callbacks for files that holdfast always writes; passing them changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from holdfast.experiment.callbacks.callback import Callback, LoggerCallback
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.records.rows import CONFIG, encode


class JsonLoggerCallback(LoggerCallback):
    """`result.json` and `params.json` in each trial's folder; they are always written."""


class CSVLoggerCallback(LoggerCallback):
    """`progress.csv` in each trial's folder; it is always written."""


class TBXLoggerCallback(LoggerCallback):
    """Event files for TensorBoard in each trial's folder; they are always written, with this
    callback even if HOLDFAST_TENSORBOARD is 0."""


_KINDS: Final = (JsonLoggerCallback, CSVLoggerCallback, TBXLoggerCallback)


def is_written_anyway(callback: Callback) -> bool:
    """True if the callback need not be called; a subclass may have its own methods."""
    return type(callback) in _KINDS


def as_asked(settings: Settings, callbacks: Sequence[Callback]) -> Settings:
    """The settings, with event files if a callback requests them."""
    wants = any(isinstance(one, TBXLoggerCallback) for one in callbacks)
    return replace(settings, tensorboard=True) if wants else settings


def pretty_print(result: Mapping[str, Any], exclude: Collection[str] | None = None) -> str:
    """A row for people: one line per value, nested values indented.

    Leaves out the config, None values and the names in `exclude`.
    """
    left_out = {CONFIG, *(exclude or ())}
    kept = {k: v for k, v in result.items() if k not in left_out and v is not None}
    return "\n".join(_lines(kept, ""))


def _lines(row: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, value in sorted(row.items()):
        if isinstance(value, Mapping) and value:
            yield f"{indent}{key}:"
            yield from _lines(value, indent + "  ")
        else:
            yield f"{indent}{key}: {encode(value) if not isinstance(value, str) else value}"
