"""`from holdfast.train.tensorflow.keras import ReportCheckpointCallback`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import KERAS, lazy

if TYPE_CHECKING:
    from holdfast.train.tensorflow.callback import (
        ReportCheckpointCallback as ReportCheckpointCallback,
    )

__getattr__, __dir__, __all__ = lazy(__name__, needs=KERAS)
