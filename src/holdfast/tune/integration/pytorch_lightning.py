"""Callbacks that report a Lightning training to its trial."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.train.lightning.with_lightning import TuneReportCallback as TuneReportCallback
    from holdfast.train.lightning.with_lightning import (
        TuneReportCheckpointCallback as TuneReportCheckpointCallback,
    )

__all__ = ["TuneReportCallback", "TuneReportCheckpointCallback"]


def __getattr__(name: str) -> Any:
    """Raises ImportError where Lightning is not installed, or too old."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from holdfast.train.lightning.common import home

    return getattr(home(), name)


def __dir__() -> list[str]:
    return list(__all__)
