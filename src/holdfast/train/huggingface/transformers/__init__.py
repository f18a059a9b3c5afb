"""`from holdfast.train.huggingface.transformers import prepare_trainer`: the names of
`ray.train.huggingface.transformers`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import Framework, lazy

if TYPE_CHECKING:
    from holdfast.train.huggingface.transformers.preparing import (
        prepare_trainer as prepare_trainer,
    )
    from holdfast.train.huggingface.transformers.reporting import (
        TrainReportCallback as TrainReportCallback,
    )

    RayTrainReportCallback = TrainReportCallback

_LIBRARY = Framework(title="Transformers", module="transformers", minimum="4.45")

__getattr__, __dir__, __all__ = lazy(__name__, needs=_LIBRARY)
