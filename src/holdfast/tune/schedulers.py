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
    from holdfast.scheduler.policies.dehb import (
        DEHBScheduler as DEHBScheduler,
    )
    from holdfast.scheduler.policies.hyperband import (
        HyperBandForBOHB as HyperBandForBOHB,
    )
    from holdfast.scheduler.policies.hyperband import (
        HyperBandScheduler as HyperBandScheduler,
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
    "DEHBScheduler": "holdfast.scheduler.policies.dehb",
    "FIFOScheduler": "holdfast.scheduler.policy",
    "HyperBandForBOHB": "holdfast.scheduler.policies.hyperband",
    "HyperBandScheduler": "holdfast.scheduler.policies.hyperband",
    "TrialScheduler": "holdfast.scheduler.policy",
}

__getattr__, __dir__ = lazy(__name__, _HOMES)
__all__ = list(_HOMES)
