"""`from holdfast import air`: the names of `ray.air`, with trackers in `air.integrations`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazy

if TYPE_CHECKING:
    from holdfast.air import session as session
    from holdfast.results.result import Result as Result
    from holdfast.syncer.checkpoint.checkpoint import Checkpoint as Checkpoint
    from holdfast.trial.config import CheckpointConfig as CheckpointConfig
    from holdfast.trial.config import FailureConfig as FailureConfig
    from holdfast.trial.config import RunConfig as RunConfig
    from holdfast.trial.scaling import ScalingConfig as ScalingConfig

__getattr__, __dir__, __all__ = lazy(__name__)
