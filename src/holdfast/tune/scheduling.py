"""Trial schedulers by their short names."""

from __future__ import annotations

from typing import Any

from holdfast.scheduler.policy import TrialScheduler
from holdfast.tune.short_names import named

# Public names of holdfast.tune.schedulers.
_CLASSES = {
    "fifo": "FIFOScheduler",
    "asha": "ASHAScheduler",
    "async_hyperband": "AsyncHyperBandScheduler",
    "asynchyperband": "AsyncHyperBandScheduler",
    "median_stopping_rule": "MedianStoppingRule",
    "medianstopping": "MedianStoppingRule",
    "hyperband": "HyperBandScheduler",
    "hb_bohb": "HyperBandForBOHB",
    "dehb": "DEHBScheduler",
    "pbt": "PopulationBasedTraining",
    "pbt_replay": "PopulationBasedTrainingReplay",
    "pb2": "PB2",
    "pasha": "PASHAScheduler",
    "mo_asha": "MultiObjectiveASHAScheduler",
    "resource_changing": "ResourceChangingScheduler",
}


def create_scheduler(scheduler: str, **kwargs: Any) -> TrialScheduler:
    """The scheduler with this short name, made with `kwargs`.

    Raises InvalidConfig for an unknown name, and the exceptions of the class for `kwargs`.
    """
    kind = named(scheduler, _CLASSES, "holdfast.tune.schedulers", "scheduler")
    made: TrialScheduler = kind(**kwargs)
    return made
