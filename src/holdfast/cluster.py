"""`holdfast.init(cluster=holdfast.cluster.SSH(["a", "b"]))`: the machines that trials run on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazy

if TYPE_CHECKING:
    from holdfast.experiment.nodes.cluster_config import SSH as SSH
    from holdfast.experiment.nodes.cluster_config import Dask as Dask
    from holdfast.experiment.nodes.cluster_config import Local as Local
    from holdfast.experiment.nodes.cluster_config import Ray as Ray
    from holdfast.experiment.nodes.cluster_config import Slurm as Slurm

__getattr__, __dir__, __all__ = lazy(__name__)
