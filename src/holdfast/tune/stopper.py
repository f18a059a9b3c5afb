"""`holdfast.tune.stopper`: stoppers, which end trials and runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazy

if TYPE_CHECKING:
    from holdfast.trial.stoppers import CombinedStopper as CombinedStopper
    from holdfast.trial.stoppers import ExperimentPlateauStopper as ExperimentPlateauStopper
    from holdfast.trial.stoppers import FunctionStopper as FunctionStopper
    from holdfast.trial.stoppers import MaximumIterationStopper as MaximumIterationStopper
    from holdfast.trial.stoppers import NoopStopper as NoopStopper
    from holdfast.trial.stoppers import Stopper as Stopper
    from holdfast.trial.stoppers import TimeoutStopper as TimeoutStopper
    from holdfast.trial.stoppers import TrialPlateauStopper as TrialPlateauStopper

__getattr__, __dir__, __all__ = lazy(__name__)
