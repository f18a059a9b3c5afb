"""`from holdfast.train.tensorflow.keras import ReportCheckpointCallback`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import TENSORFLOW, lazy

if TYPE_CHECKING:
    from holdfast.train.tensorflow.callback import (
        ReportCheckpointCallback as ReportCheckpointCallback,
    )

_HOMES = {"ReportCheckpointCallback": "holdfast.train.tensorflow.callback"}

__getattr__, __dir__ = lazy(__name__, _HOMES, needs=TENSORFLOW)
__all__ = list(_HOMES)
