"""Callbacks for files that are written anyway: given or not, each file is there once."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from holdfast.experiment.callbacks.callback import Callback, LoggerCallback
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.projector import tensorboard
from holdfast.experiment.records.rows import CONFIG, encode
from holdfast.lazy import TENSORBOARD


class JsonLoggerCallback(LoggerCallback):
    """`result.json` and `params.json` in each trial's folder: written with and without it."""


class CSVLoggerCallback(LoggerCallback):
    """`progress.csv` in each trial's folder: written with and without it."""


class TBXLoggerCallback(LoggerCallback):
    """Event files for TensorBoard in each trial's folder, written wherever tensorboardX is.

    With it they are written even if HOLDFAST_TENSORBOARD is 0, and `fit()` raises ImportError
    where tensorboardX is missing.
    """

    def check(self, environ: Mapping[str, str]) -> None:
        """Raises ImportError, naming the extra."""
        if not tensorboard.available():
            told = TENSORBOARD.missing("TBXLoggerCallback")
            raise ImportError(told, name=TENSORBOARD.module)


_KINDS: Final = (JsonLoggerCallback, CSVLoggerCallback, TBXLoggerCallback)


def is_written_anyway(callback: Callback) -> bool:
    """Whether there is nothing to call: a subclass may have methods of its own."""
    return type(callback) in _KINDS


def as_asked(settings: Settings, callbacks: Sequence[Callback]) -> Settings:
    """The settings with event files where somebody asked for them."""
    wants = any(isinstance(one, TBXLoggerCallback) for one in callbacks)
    return replace(settings, tensorboard=True) if wants else settings


def pretty_print(result: Mapping[str, Any], exclude: Collection[str] | None = None) -> str:
    """A row for people, a line for each value, nested ones indented; without `exclude`, the config
    and what is None."""
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
