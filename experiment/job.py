"""What passes between the controller and a worker, as types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.trial.checkpoint import CheckpointRecord
from holdfast.trial.resources import PlacementGroupFactory


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What all workers of an experiment share; it reaches them once, pickled, in memory only.

    `param_space` holds the user's objects that a trial's config refers to. `log_names` are the
    files in the trial's directory that take its stdout and stderr. `echo` sends what is printed
    to the controller too. `capture` is off only where the trial runs in the script's own process.
    """

    trainable: Any
    param_space: Mapping[str, Any]
    experiment_name: str
    experiment_dir: str
    storage: str
    working_dir: str
    run: str
    chdir: bool = True
    log_names: tuple[str, str] = ("stdout", "stderr")
    echo: bool = True
    capture: bool = True
    checkpoint_frequency: int = 0
    checkpoint_at_end: bool = False
    reuse_actors: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One attempt at one trial, as the worker is told.

    `checkpoint` is the record to resume from, its files lie in the trial's directory. `config` is
    plain (`holdfast.trial.values.to_plain`). `time_total_s` is the training time so far.
    """

    trial_id: str
    trial_name: str
    dirname: str
    attempt: int
    config: Any
    tag: str
    iteration: int
    time_total_s: float
    next_checkpoint: int
    checkpoint: CheckpointRecord | None
    resources: PlacementGroupFactory
    gpus: tuple[str, ...] = ()
    sets_gpus: bool = False
