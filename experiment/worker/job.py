"""The types of what the controller sends to a worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple

from holdfast.dataclass import dataclass
from holdfast.trial.resources import PlacementGroupFactory


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTerms:
    """How several workers train one trial.

    `keeps_all_metrics`: rows have the metrics of every rank in addition to rank 0's.
    `refuses_clashes`: a report fails if two ranks have files of the same name.
    """

    keeps_all_metrics: bool = False
    refuses_clashes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What all workers of an experiment share; sent to them once, pickled, and never stored.

    `param_space` holds the user's objects that a trial's config refers to. `log_names` are the
    files in the trial's directory for its stdout and stderr. `echo`: output is also sent to the
    controller. `capture` is false only if the trial runs in the script's own process.
    `is_mirrored`: the storage is elsewhere. `group` is set if each trial has several workers.
    Unless it is `trusted`, no checkpoint is unpickled.
    """

    trainable: Any
    param_space: Mapping[str, Any]
    experiment_name: str
    experiment_dir: str
    storage: str
    working_dir: str
    chdir: bool = True
    log_names: tuple[str, str] = ("stdout", "stderr")
    echo: bool = True
    capture: bool = True
    checkpoint_frequency: int = 0
    checkpoint_at_end: bool = False
    reuse_actors: bool = False
    preemption_grace_s: float = 5.0
    is_mirrored: bool = False
    group: GroupTerms | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    trusted: bool = True


class Assignment(NamedTuple):
    """One attempt at a trial, as sent to the worker: plain values, a list on the wire.

    `checkpoint` is the folder in the trial's directory to resume from. `config` is plain
    (`holdfast.trial.encoding.to_plain`). `time_total_s` is the training time so far. `bundles` and
    `strategy` make the trial's PlacementGroupFactory; `cpus` is its sum of CPUs, or a rank's part
    of it. This worker is number `rank` of `world_size`.
    """

    trial_id: str
    trial_name: str
    dirname: str
    attempt: int
    config: Any
    iteration: int
    time_total_s: float
    next_checkpoint: int
    checkpoint: str | None
    bundles: Sequence[Mapping[str, float]]
    strategy: str
    cpus: float
    gpus: Sequence[str] = ()
    sets_gpus: bool = False
    rank: int = 0
    world_size: int = 1

    @property
    def resources(self) -> PlacementGroupFactory:
        return PlacementGroupFactory(self.bundles, self.strategy)


def parts_of(assignment: Assignment) -> list[Assignment]:
    """The assignment of each rank: its own bundle, which follows the coordinator's.

    All ranks see the GPUs of all, as under torchrun: `LOCAL_RANK` says which one to use.
    """
    bundles = assignment.bundles[1:]
    return [
        assignment._replace(
            rank=rank,
            world_size=len(bundles),
            cpus=bundle.get("CPU", 0),
            gpus=assignment.gpus if bundle.get("GPU") else (),
        )
        for rank, bundle in enumerate(bundles)
    ]
