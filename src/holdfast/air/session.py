"""`from holdfast.air import session`: the functions of `ray.air.session`, as scripts of 2022 call
them."""

from __future__ import annotations

from holdfast.experiment.worker.context import get_checkpoint, get_context, report
from holdfast.experiment.worker.train_loop import get_dataset_shard
from holdfast.trial.resources import PlacementGroupFactory

__all__ = [
    "get_checkpoint",
    "get_dataset_shard",
    "get_experiment_name",
    "get_local_rank",
    "get_local_world_size",
    "get_node_rank",
    "get_trial_dir",
    "get_trial_id",
    "get_trial_name",
    "get_trial_resources",
    "get_world_rank",
    "get_world_size",
    "report",
]


def get_experiment_name() -> str:
    """The name of the experiment. Like all of these, raises NotInTrial outside a trial."""
    return get_context().get_experiment_name()


def get_trial_name() -> str:
    """The name of the trial, as the progress table shows it."""
    return get_context().get_trial_name()


def get_trial_id() -> str:
    """The id of the trial, the same over all attempts and restores."""
    return get_context().get_trial_id()


def get_trial_resources() -> PlacementGroupFactory:
    """The CPUs, GPUs and custom resources that the trial holds."""
    return get_context().get_trial_resources()


def get_trial_dir() -> str:
    """The trial's local directory."""
    return get_context().get_trial_dir()


def get_world_size() -> int:
    """The number of workers that train this trial together."""
    return get_context().get_world_size()


def get_world_rank() -> int:
    """The number of this worker among them, from 0."""
    return get_context().get_world_rank()


def get_local_rank() -> int:
    """The number of this worker among those on this machine, from 0."""
    return get_context().get_local_rank()


def get_local_world_size() -> int:
    """The number of them on this machine."""
    return get_context().get_local_world_size()


def get_node_rank() -> int:
    """The number of this worker's machine among those of the trial, from 0."""
    return get_context().get_node_rank()
