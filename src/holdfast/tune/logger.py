"""`holdfast.tune.logger`: what follows results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazy

if TYPE_CHECKING:
    from holdfast.experiment.callbacks.callback import LoggerCallback as LoggerCallback
    from holdfast.experiment.projector.logger_callbacks import (
        CSVLoggerCallback as CSVLoggerCallback,
    )
    from holdfast.experiment.projector.logger_callbacks import (
        JsonLoggerCallback as JsonLoggerCallback,
    )
    from holdfast.experiment.projector.logger_callbacks import (
        TBXLoggerCallback as TBXLoggerCallback,
    )
    from holdfast.experiment.projector.logger_callbacks import pretty_print as pretty_print

_HOMES = {
    "CSVLoggerCallback": "holdfast.experiment.projector.logger_callbacks",
    "JsonLoggerCallback": "holdfast.experiment.projector.logger_callbacks",
    "LoggerCallback": "holdfast.experiment.callbacks.callback",
    "TBXLoggerCallback": "holdfast.experiment.projector.logger_callbacks",
    "pretty_print": "holdfast.experiment.projector.logger_callbacks",
}

__getattr__, __dir__ = lazy(__name__, _HOMES)
__all__ = list(_HOMES)
