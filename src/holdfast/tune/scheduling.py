"""Trial schedulers by their short names."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from holdfast.scheduler.policy import TrialScheduler
from holdfast.tune.short_names import home_of

_HOMES = {
    "fifo": "holdfast.scheduler.policy:FIFOScheduler",
    "asha": "holdfast.scheduler.policies.asha:ASHAScheduler",
    "async_hyperband": "holdfast.scheduler.policies.asha:AsyncHyperBandScheduler",
    "asynchyperband": "holdfast.scheduler.policies.asha:AsyncHyperBandScheduler",
    "median_stopping_rule": "holdfast.scheduler.policies.median:MedianStoppingRule",
    "medianstopping": "holdfast.scheduler.policies.median:MedianStoppingRule",
    "hyperband": "holdfast.scheduler.policies.hyperband:HyperBandScheduler",
    "hb_bohb": "holdfast.scheduler.policies.hyperband:HyperBandForBOHB",
    "dehb": "holdfast.scheduler.policies.dehb:DEHBScheduler",
    "pbt": "holdfast.scheduler.policies.pbt:PopulationBasedTraining",
    "pbt_replay": "holdfast.experiment.worker.pbt_replay:PopulationBasedTrainingReplay",
    "pb2": "holdfast.scheduler.policies.pb2:PB2",
    "pasha": "holdfast.scheduler.policies.pasha:PASHAScheduler",
    "mo_asha": "holdfast.scheduler.policies.multi_objective:MultiObjectiveASHAScheduler",
    "resource_changing": "holdfast.scheduler.policies.resource_changing:ResourceChangingScheduler",
}


def create_scheduler(scheduler: str, **kwargs: Any) -> TrialScheduler:
    """The scheduler of this short name, made with `kwargs`.

    Raises InvalidConfig for a name that there is not, and what the class raises for `kwargs`.
    """
    module, _, name = home_of(scheduler, _HOMES, "scheduler").partition(":")
    made: TrialScheduler = getattr(import_module(module), name)(**kwargs)
    return made
