"""`holdfast.tune.logger`: callbacks that log results."""

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

__getattr__, __dir__, __all__ = lazy(__name__)
