"""`holdfast.tune.logger`: what follows results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazy

if TYPE_CHECKING:
    from holdfast.experiment.callbacks import LoggerCallback as LoggerCallback

_HOMES = {
    "LoggerCallback": "holdfast.experiment.callbacks",
}

__getattr__, __dir__ = lazy(__name__, _HOMES)
__all__ = list(_HOMES)
