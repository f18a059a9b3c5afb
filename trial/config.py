"""What a user says about a run, checked when it is said."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Literal

from holdfast.trial.errors import InvalidConfig
from holdfast.trial.runtime_env import RuntimeEnv, runtime_env_of
from holdfast.trial.stopper import Stopper

StopCriteria = Mapping[str, Any] | Stopper | Callable[[str, dict[str, Any]], bool] | None


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InvalidConfig(message)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@dataclass(frozen=True, kw_only=False)
class CheckpointConfig:
    """Which checkpoints are kept, and how often a class trainable makes one.

    `num_to_keep`: the best so many by `checkpoint_score_attribute` (by age where that is None)
    and always the newest; None keeps all. A value that is missing, infinite, NaN or no number
    ranks below all others. `checkpoint_frequency`: iterations between two checkpoints of a class
    trainable, 0 for never; `checkpoint_at_end`: one more at its end.
    A function trainable decides itself by what it reports.

    Raises InvalidConfig.
    """

    num_to_keep: int | None = None
    checkpoint_score_attribute: str | None = None
    checkpoint_score_order: str | None = "max"
    checkpoint_frequency: int | None = 0
    checkpoint_at_end: bool | None = None

    def __post_init__(self) -> None:
        keep = self.num_to_keep
        _require(
            keep is None or (_is_count(keep) and keep > 0),
            f"num_to_keep must be a positive whole number, or None to keep every checkpoint; "
            f"not {keep!r}. A trial without any checkpoint cannot be resumed",
        )
        _require(
            self.checkpoint_score_order in ("max", "min"),
            f"checkpoint_score_order must be 'max' or 'min', not {self.checkpoint_score_order!r}",
        )
        frequency = self.checkpoint_frequency
        _require(
            frequency is None or (_is_count(frequency) and frequency >= 0),
            f"checkpoint_frequency must be a number of iterations, 0 for never; not {frequency!r}",
        )


@dataclass(frozen=True)
class FailureConfig:
    """How often a trial is tried again after which failure, and when failures end the run.

    `max_failures`: 0 for no retry, -1 for no limit. `fail_fast`: True stops all trials at the
    first one that errors for good; "raise" does so and raises its error from `fit()`.

    What follows is holdfast's own. Failures that are not the user code's have a budget each, of
    the same meaning as `max_failures`; None counts them with it. `max_lost_workers`: the worker
    process was killed, crashed or hung. `max_out_of_memory`: the kernel killed it for want of
    memory. `max_preemptions`: it was sent SIGTERM from outside.
    `retry_wait_s`: seconds before the first retry of a trial, doubled for each further one up to
    `longest_retry_wait_s`, each shortened by chance to between half and all of it.
    `reset_on_progress`: a new checkpoint gives the trial all its budgets back.
    `max_errored_trials`: the run ends, resumable, when more trials than that have errored for
    good; None for no limit.
    `hang_timeout_s`: seconds without a report after which a worker counts as hung: its stack goes
    to the trial's stderr, and it is killed. None for never.
    `preemption_grace_s`: seconds that a trial has to report a checkpoint after SIGTERM.
    `lost_worker_absence_s`: seconds for which an elastic group of workers that has lost one does
    not look for another in its place.

    Raises InvalidConfig.
    """

    max_failures: int = 0
    fail_fast: bool | str = False
    _: KW_ONLY
    max_lost_workers: int | None = None
    max_out_of_memory: int | None = None
    max_preemptions: int | None = -1
    retry_wait_s: float = 0.0
    longest_retry_wait_s: float = 300.0
    reset_on_progress: bool = False
    max_errored_trials: int | None = None
    hang_timeout_s: float | None = None
    preemption_grace_s: float = 5.0
    lost_worker_absence_s: float = 30.0

    def __post_init__(self) -> None:
        for name in ("max_failures", "max_lost_workers", "max_out_of_memory", "max_preemptions"):
            most = getattr(self, name)
            shared = most is None and name != "max_failures"
            _require(
                shared or (_is_count(most) and most >= -1),
                f"{name} must be 0 or more, or -1 for no limit; not {most!r}",
            )
        _require(
            isinstance(self.fail_fast, bool) or self.fail_fast == "raise",
            f"fail_fast must be True, False or 'raise', not {self.fail_fast!r}",
        )
        _require(
            not (self.fail_fast and self.max_failures),
            f"fail_fast={self.fail_fast!r} ends the run at the first failure, so "
            f"max_failures={self.max_failures} could never be used: give one of them",
        )
        errored = self.max_errored_trials
        _require(
            errored is None or (_is_count(errored) and errored >= 0),
            f"max_errored_trials must be 0 or more, or None for no limit; not {errored!r}",
        )
        for name in (
            "retry_wait_s",
            "longest_retry_wait_s",
            "preemption_grace_s",
            "lost_worker_absence_s",
        ):
            seconds = getattr(self, name)
            _require(
                _is_number(seconds) and 0 <= seconds < math.inf,
                f"{name} must be a number of seconds, 0 or more; not {seconds!r}",
            )
        hang = self.hang_timeout_s
        _require(
            hang is None or (_is_number(hang) and 0 < hang < math.inf),
            f"hang_timeout_s must be a number of seconds above 0, or None; not {hang!r}",
        )


@dataclass(frozen=True)
class SyncConfig:
    """How the local directory reaches storage.

    `sync_period`: seconds between two uploads of what is not a checkpoint; `sync_timeout`: seconds
    after which one upload counts as failed; `sync_artifacts`: whether the files that a trial
    writes to its working directory are persisted, and `sync_artifacts_on_checkpoint` whether that
    is done with each checkpoint too; `restore_artifacts`: whether a trial that goes on on another
    machine finds them in its working directory there.

    Raises InvalidConfig.
    """

    sync_period: float = 300
    sync_timeout: float = 1800
    sync_artifacts: bool = False
    sync_artifacts_on_checkpoint: bool = True
    restore_artifacts: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        for name in ("sync_period", "sync_timeout"):
            seconds = getattr(self, name)
            _require(
                isinstance(seconds, (int, float)) and seconds > 0,
                f"{name} must be a number of seconds above 0, not {seconds!r}",
            )


@dataclass(frozen=True)
class RunConfig:
    """Where a run keeps its results, when it stops, and what it does about failures.

    `runtime_env`: `{"env_vars": {...}, "working_dir": ...}` for the workers of this experiment,
    over what `holdfast.init` says. The variables reach every worker and no file; a restore is
    given them again.

    Raises InvalidConfig.
    """

    name: str | None = None
    storage_path: Any = None
    storage_filesystem: Any = None
    failure_config: FailureConfig = field(default_factory=FailureConfig)
    checkpoint_config: CheckpointConfig = field(default_factory=CheckpointConfig)
    sync_config: SyncConfig = field(default_factory=SyncConfig)
    verbose: int | None = None
    stop: StopCriteria = None
    callbacks: Sequence[Any] | None = None
    progress_reporter: Any = None
    log_to_file: bool | str | tuple[str, str] = False
    runtime_env: Mapping[str, Any] | RuntimeEnv | None = field(
        default=None, kw_only=True, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        environment = runtime_env_of(self.runtime_env, where="RunConfig(runtime_env=...)")
        object.__setattr__(self, "runtime_env", environment)
        for name, kind in _PARTS.items():
            part = getattr(self, name)
            if part is None:
                object.__setattr__(self, name, kind())
            else:
                _require(isinstance(part, kind), f"{name} must be a {kind.__name__}, not {part!r}")
        self._check_name()
        _require(
            self.verbose in (None, 0, 1, 2, 3), f"verbose must be 0 to 3, not {self.verbose!r}"
        )
        check_stop(self.stop)
        self._check_log_to_file()
        if self.callbacks is not None:
            _require(
                isinstance(self.callbacks, Sequence) and not isinstance(self.callbacks, str),
                f"callbacks must be a list of Callback objects, not {self.callbacks!r}",
            )

    def _check_name(self) -> None:
        name = self.name
        _require(
            name is None or (isinstance(name, str) and name not in ("", ".", "..")),
            f"name must be a non-empty string, not {name!r}",
        )
        _require(
            name is None or not any(sign in name for sign in "/\\\0"),
            f"name is one folder of the storage path and cannot hold a slash: {name!r}. "
            f"Put the folders above it into storage_path",
        )

    def _check_log_to_file(self) -> None:
        value = self.log_to_file
        _require(
            isinstance(value, (bool, str))
            or (
                isinstance(value, (tuple, list))
                and len(value) == 2
                and all(isinstance(part, str) for part in value)
            ),
            f"log_to_file must be True, a file name, or a pair of file names, not {value!r}",
        )


def check_stop(stop: object) -> None:
    """Raises InvalidConfig for what is no stop condition."""
    _require(
        not isinstance(stop, (list, tuple, set, frozenset)),
        f"stop must be one condition, not {stop!r:.100}: CombinedStopper(a, b) ends what any of "
        f"several Stoppers ends",
    )
    _require(
        not isinstance(stop, type),
        f"stop must be an object, not the class {getattr(stop, '__name__', '')}: call it",
    )
    _require(
        stop is None or isinstance(stop, (Mapping, Stopper)) or callable(stop),
        f"stop must be a dict of metric to bound, a function of (trial_id, result) or a "
        f"Stopper, not {stop!r}",
    )
    if isinstance(stop, Mapping):
        for key, bound in stop.items():
            _require(
                isinstance(bound, (int, float)) and not math.isnan(bound),
                f"stop[{key!r}] must be a number (or a bool), not {bound!r}",
            )


_PARTS: dict[str, type] = {
    "failure_config": FailureConfig,
    "checkpoint_config": CheckpointConfig,
    "sync_config": SyncConfig,
}


@dataclass(frozen=True)
class TuneConfig:
    """What is optimized, and how trials are chosen and scheduled.

    `metric`/`mode` ("max" or "min") name the goal. `num_samples`: repeats of the grid, -1 for
    without end (then `time_budget_s` or a stopper must end it). `max_concurrent_trials`: at most
    so many at once, None for as many as the resources allow. `time_budget_s`: seconds, or a
    timedelta, after which all trials are stopped. `reuse_actors`: run further trials in a worker
    process that already exists.

    Raises InvalidConfig.
    """

    mode: Literal["max", "min"] | None = None
    metric: str | None = None
    search_alg: Any = None
    scheduler: Any = None
    num_samples: int = 1
    max_concurrent_trials: int | None = None
    time_budget_s: Any = None
    reuse_actors: bool = False
    trial_name_creator: Callable[[Any], str] | None = None
    trial_dirname_creator: Callable[[Any], str] | None = None

    def __post_init__(self) -> None:
        _require(
            self.mode in (None, "max", "min"), f"mode must be 'max' or 'min', not {self.mode!r}"
        )
        _require(
            self.metric is None or (isinstance(self.metric, str) and self.metric != ""),
            f"metric must be the name of a reported value, not {self.metric!r}",
        )
        _require(
            _is_count(self.num_samples) and (self.num_samples > 0 or self.num_samples == -1),
            f"num_samples must be 1 or more, or -1 for without end; not {self.num_samples!r}",
        )
        most = self.max_concurrent_trials
        _require(
            most is None or (_is_count(most) and most >= 0),
            f"max_concurrent_trials must be a positive whole number or None, not {most!r}",
        )
        budget = self.budget_seconds
        _require(
            budget is None or budget > 0,
            f"time_budget_s must be above 0 seconds, not {self.time_budget_s!r}",
        )

    @property
    def budget_seconds(self) -> float | None:
        """`time_budget_s` as seconds, whether it was given as a number or a timedelta.

        None where it is endless.
        """
        budget = self.time_budget_s
        if budget is None:
            return None
        if hasattr(budget, "total_seconds"):
            return float(budget.total_seconds())
        _require(
            isinstance(budget, (int, float)) and not math.isnan(budget),
            f"time_budget_s must be seconds or a timedelta, not {budget!r}",
        )
        return None if budget == math.inf else float(budget)


class ResumeType(StrEnum):
    """What a restore does with a trial: leave it, go on from its checkpoint, or begin again."""

    SKIP = "skip"
    RESUME = "resume"
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class ResumeConfig:
    """What a restore does with the trials that it finds.

    Each of `finished`, `unfinished` and `errored` is "skip" (leave as it is), "resume" (go on from
    the newest checkpoint) or "restart" (begin again), or one of `ResumeConfig.ResumeType`. A
    finished trial that is to resume and has no checkpoint stays finished.

    Raises InvalidConfig.
    """

    finished: str = ResumeType.SKIP
    unfinished: str = ResumeType.RESUME
    errored: str = ResumeType.SKIP

    ResumeType: ClassVar[type[ResumeType]] = ResumeType

    def __post_init__(self) -> None:
        known = tuple(str(kind) for kind in ResumeType)
        for name in ("finished", "unfinished", "errored"):
            value = getattr(self, name)
            _require(
                isinstance(value, str) and value in known,
                f"{name} must be one of {known}, not {value!r}",
            )
            object.__setattr__(self, name, str(value))
