"""`from holdfast.train.collective import barrier`: the ranks wait for each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazy

if TYPE_CHECKING:
    from holdfast.experiment.worker.rank_session import barrier as barrier
    from holdfast.experiment.worker.rank_session import (
        broadcast_from_rank_zero as broadcast_from_rank_zero,
    )

__getattr__, __dir__, __all__ = lazy(__name__)
