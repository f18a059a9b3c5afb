"""`holdfast.tune.stopper`: what ends trials."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazy

if TYPE_CHECKING:
    from holdfast.trial.stopper import Stopper as Stopper
    from holdfast.trial.stoppers import (
        CombinedStopper as CombinedStopper,
    )
    from holdfast.trial.stoppers import (
        ExperimentPlateauStopper as ExperimentPlateauStopper,
    )
    from holdfast.trial.stoppers import (
        FunctionStopper as FunctionStopper,
    )
    from holdfast.trial.stoppers import (
        MaximumIterationStopper as MaximumIterationStopper,
    )
    from holdfast.trial.stoppers import (
        NoopStopper as NoopStopper,
    )
    from holdfast.trial.stoppers import (
        TimeoutStopper as TimeoutStopper,
    )
    from holdfast.trial.stoppers import (
        TrialPlateauStopper as TrialPlateauStopper,
    )

_HOMES = {
    "Stopper": "holdfast.trial.stopper",
    "CombinedStopper": "holdfast.trial.stoppers",
    "ExperimentPlateauStopper": "holdfast.trial.stoppers",
    "FunctionStopper": "holdfast.trial.stoppers",
    "MaximumIterationStopper": "holdfast.trial.stoppers",
    "NoopStopper": "holdfast.trial.stoppers",
    "TimeoutStopper": "holdfast.trial.stoppers",
    "TrialPlateauStopper": "holdfast.trial.stoppers",
}

__getattr__, __dir__ = lazy(__name__, _HOMES)
__all__ = list(_HOMES)
