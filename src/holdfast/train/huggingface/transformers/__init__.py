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

_REPORTING = "holdfast.train.huggingface.transformers.reporting"
_HOMES = {
    "RayTrainReportCallback": f"{_REPORTING}:TrainReportCallback",
    "TrainReportCallback": _REPORTING,
    "prepare_trainer": "holdfast.train.huggingface.transformers.preparing",
}
_LIBRARY = Framework(
    title="Transformers",
    module="transformers",
    extra="transformers",
    minimum="4.45",
    distributions=("transformers",),
)

__getattr__, __dir__ = lazy(__name__, _HOMES, needs=_LIBRARY)
__all__ = list(_HOMES)
