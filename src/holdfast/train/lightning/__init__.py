"""`from holdfast.train.lightning import DDPStrategy`: the names of `ray.train.lightning`.

The module works for scripts that import `lightning.pytorch` and for scripts that import
`pytorch_lightning`. If a process uses both, `holdfast.train.lightning.with_lightning` and
`.with_pytorch_lightning` have the classes for each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.train.lightning.common import prepare_trainer as prepare_trainer
    from holdfast.train.lightning.with_lightning import DDPStrategy as DDPStrategy
    from holdfast.train.lightning.with_lightning import DeepSpeedStrategy as DeepSpeedStrategy
    from holdfast.train.lightning.with_lightning import FSDPStrategy as FSDPStrategy
    from holdfast.train.lightning.with_lightning import (
        LightningEnvironment as LightningEnvironment,
    )
    from holdfast.train.lightning.with_lightning import TrainReportCallback as TrainReportCallback

    RayDDPStrategy = DDPStrategy
    RayDeepSpeedStrategy = DeepSpeedStrategy
    RayFSDPStrategy = FSDPStrategy
    RayLightningEnvironment = LightningEnvironment
    RayTrainReportCallback = TrainReportCallback

# What a script that moves here calls them.
_ALIASES = {
    "RayDDPStrategy": "DDPStrategy",
    "RayDeepSpeedStrategy": "DeepSpeedStrategy",
    "RayFSDPStrategy": "FSDPStrategy",
    "RayLightningEnvironment": "LightningEnvironment",
    "RayTrainReportCallback": "TrainReportCallback",
}
__all__ = sorted(["prepare_trainer", *_ALIASES, *_ALIASES.values()])


def __getattr__(name: str) -> Any:
    """Raises ImportError where Lightning is not installed, or too old."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from holdfast.train.lightning.common import home

    found = home()
    if name == "prepare_trainer":
        from holdfast.train.lightning.common import prepare_trainer

        return prepare_trainer
    return getattr(found, _ALIASES.get(name, name))


def __dir__() -> list[str]:
    return list(__all__)
