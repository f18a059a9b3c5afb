"""`holdfast.tune.schedulers`: what decides who runs on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazy

if TYPE_CHECKING:
    from holdfast.scheduler.policies.asha import (
        ASHAScheduler as ASHAScheduler,
    )
    from holdfast.scheduler.policies.asha import (
        AsyncHyperBandScheduler as AsyncHyperBandScheduler,
    )
    from holdfast.scheduler.policy import (
        FIFOScheduler as FIFOScheduler,
    )
    from holdfast.scheduler.policy import (
        TrialScheduler as TrialScheduler,
    )

_HOMES = {
    "ASHAScheduler": "holdfast.scheduler.policies.asha",
    "AsyncHyperBandScheduler": "holdfast.scheduler.policies.asha",
    "FIFOScheduler": "holdfast.scheduler.policy",
    "TrialScheduler": "holdfast.scheduler.policy",
}

__getattr__, __dir__ = lazy(__name__, _HOMES)
__all__ = list(_HOMES)
