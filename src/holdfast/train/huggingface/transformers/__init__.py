"""`from holdfast.train.huggingface.transformers import prepare_trainer`: the names of
`ray.train.huggingface.transformers`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import Framework, lazy

if TYPE_CHECKING:
    from holdfast.train.huggingface.transformers.loop import (
        TrainReportCallback as TrainReportCallback,
    )
    from holdfast.train.huggingface.transformers.loop import (
        prepare_trainer as prepare_trainer,
    )

    RayTrainReportCallback = TrainReportCallback

_LIBRARY = Framework(title="Transformers", module="transformers", minimum="4.45")

__getattr__, __dir__, __all__ = lazy(__name__, needs=_LIBRARY)
