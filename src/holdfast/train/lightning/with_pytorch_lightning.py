"""For scripts that import `pytorch_lightning`."""

from __future__ import annotations

from holdfast.train.lightning.common import (
    AmongRanks,
    EpochReport,
    Fitting,
    HookReport,
    HookReportCheckpoint,
    OfTrial,
    Sharded,
    for_us,
)

with for_us("pytorch_lightning"):
    from pytorch_lightning import strategies
    from pytorch_lightning.callbacks import Callback
    from pytorch_lightning.plugins import environments


class LightningEnvironment(OfTrial, environments.LightningEnvironment, metaclass=Fitting):
    __doc__ = OfTrial.__doc__


class DDPStrategy(AmongRanks, strategies.DDPStrategy, metaclass=Fitting):
    """Each rank has the whole model; takes what Lightning's own DDPStrategy takes."""

    environment_type = LightningEnvironment


class FSDPStrategy(Sharded, strategies.FSDPStrategy, metaclass=Fitting):
    """Each rank has a part of the model; takes what Lightning's own FSDPStrategy takes.

    With `state_dict_type="sharded"` each rank saves its part.
    """

    environment_type = LightningEnvironment


class DeepSpeedStrategy(AmongRanks, strategies.DeepSpeedStrategy, metaclass=Fitting):
    """DeepSpeed's ZeRO; takes what Lightning's own DeepSpeedStrategy takes, and needs GPUs."""

    environment_type = LightningEnvironment


class TrainReportCallback(EpochReport, Callback, metaclass=Fitting):
    __doc__ = EpochReport.__doc__


class TuneReportCallback(HookReport, Callback, metaclass=Fitting):
    __doc__ = HookReport.__doc__


class TuneReportCheckpointCallback(HookReportCheckpoint, Callback, metaclass=Fitting):
    __doc__ = HookReportCheckpoint.__doc__
