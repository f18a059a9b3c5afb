"""`holdfast.tune.schedulers`: trial schedulers, which stop, pause and change trials."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazy

if TYPE_CHECKING:
    from holdfast.experiment.start.short_names import create_scheduler as create_scheduler
    from holdfast.experiment.worker.pbt_replay import (
        PopulationBasedTrainingReplay as PopulationBasedTrainingReplay,
    )
    from holdfast.scheduler.policies.asha import ASHAScheduler as ASHAScheduler
    from holdfast.scheduler.policies.asha import AsyncHyperBandScheduler as AsyncHyperBandScheduler
    from holdfast.scheduler.policies.asha import AutoScheduler as AutoScheduler
    from holdfast.scheduler.policies.asha import (
        MultiObjectiveASHAScheduler as MultiObjectiveASHAScheduler,
    )
    from holdfast.scheduler.policies.hyperband import DEHBScheduler as DEHBScheduler
    from holdfast.scheduler.policies.hyperband import HyperBandForBOHB as HyperBandForBOHB
    from holdfast.scheduler.policies.hyperband import HyperBandScheduler as HyperBandScheduler
    from holdfast.scheduler.policies.median import MedianStoppingRule as MedianStoppingRule
    from holdfast.scheduler.policies.pasha import PASHAScheduler as PASHAScheduler
    from holdfast.scheduler.policies.pb2 import PB2 as PB2
    from holdfast.scheduler.policies.pbt import PopulationBasedTraining as PopulationBasedTraining
    from holdfast.scheduler.policies.resource_changing import (
        DistributeResources as DistributeResources,
    )
    from holdfast.scheduler.policies.resource_changing import (
        DistributeResourcesToTopJob as DistributeResourcesToTopJob,
    )
    from holdfast.scheduler.policies.resource_changing import (
        EvenlyDistributeCPUsGPUs as EvenlyDistributeCPUsGPUs,
    )
    from holdfast.scheduler.policies.resource_changing import (
        ResourceChangingScheduler as ResourceChangingScheduler,
    )
    from holdfast.scheduler.policy import FIFOScheduler as FIFOScheduler
    from holdfast.scheduler.policy import TrialScheduler as TrialScheduler

__getattr__, __dir__, __all__ = lazy(__name__)
