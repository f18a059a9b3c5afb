"""`holdfast.tune.logger`: what follows results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazy

if TYPE_CHECKING:
    from holdfast.experiment.callbacks import LoggerCallback as LoggerCallback
    from holdfast.experiment.written import CSVLoggerCallback as CSVLoggerCallback
    from holdfast.experiment.written import JsonLoggerCallback as JsonLoggerCallback
    from holdfast.experiment.written import TBXLoggerCallback as TBXLoggerCallback
    from holdfast.experiment.written import pretty_print as pretty_print

_HOMES = {
    "CSVLoggerCallback": "holdfast.experiment.written",
    "JsonLoggerCallback": "holdfast.experiment.written",
    "LoggerCallback": "holdfast.experiment.callbacks",
    "TBXLoggerCallback": "holdfast.experiment.written",
    "pretty_print": "holdfast.experiment.written",
}

__getattr__, __dir__ = lazy(__name__, _HOMES)
__all__ = list(_HOMES)
