"""A user's settings of a run, checked when they are constructed."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, field
from typing import Any

from holdfast.assignable import Assignable
from holdfast.dataclass import dataclass
from holdfast.plain_numbers import is_count, is_number, made_of_numbers, plain_number
from holdfast.schema import Limit
from holdfast.trial.errors import require
from holdfast.trial.runtime_env import RuntimeEnv, runtime_env_of
from holdfast.trial.stopper import Stopper
from holdfast.trial.stoppers import CombinedStopper
from holdfast.unknown_keywords import explains_keywords

_log = logging.getLogger(__name__)
# The default of `sync_period` for a run on nodes, in seconds.
PERIOD_ON_NODES_S = 10.0
StopCriteria = (
    Mapping[str, Any] | Stopper | Sequence[Stopper] | Callable[[str, dict[str, Any]], bool] | None
)


@explains_keywords
@dataclass(unsafe_hash=True, kw_only=False)
class CheckpointConfig(Assignable):
    """Which checkpoints are kept, and how often a class trainable saves one.

    `num_to_keep`: how many to keep, the best by `checkpoint_score_attribute` (if that is None, the
    newest); the newest is always kept; None keeps all. `checkpoint_score_order`: "max" or "min". A
    value that is missing, infinite, NaN or not a number ranks below all others.
    `checkpoint_frequency`: iterations between two checkpoints of a class trainable, 0 for never.
    `checkpoint_at_end`: whether a class trainable saves one more at its end. A function trainable
    decides by what it reports.

    Raises InvalidConfig.
    """

    num_to_keep: int | None = None
    checkpoint_score_attribute: str | None = None
    checkpoint_score_order: str | None = "max"
    checkpoint_frequency: int | None = 0
    checkpoint_at_end: bool | None = None

    def __post_init__(self) -> None:
        keep = self.num_to_keep
        require(
            keep is None or (is_count(keep) and keep > 0),
            "num_to_keep must be a positive whole number, or None to keep every checkpoint, not "
            f"{keep!r}. A trial without a checkpoint cannot be resumed",
        )
        require(
            self.checkpoint_score_order in ("max", "min"),
            f"checkpoint_score_order must be 'max' or 'min', not {self.checkpoint_score_order!r}",
        )
        frequency = self.checkpoint_frequency
        require(
            frequency is None or (is_count(frequency) and frequency >= 0),
            f"checkpoint_frequency must be a number of iterations, 0 for never, not {frequency!r}",
        )


_SHARED_BUDGETS = ("max_lost_workers", "max_out_of_memory", "max_preemptions")
_BUDGETS = (
    "max_failures",
    "controller_failure_limit",
    "max_preemption_failures",
    *_SHARED_BUDGETS,
)


@explains_keywords
@dataclass(unsafe_hash=True)
class FailureConfig(Assignable):
    """How often a trial is retried after each kind of failure, and when failures end the run.

    `max_failures`: 0 for no retry, -1 for no limit. `fail_fast`: True stops all trials when the
    first one errors for good; "raise" also raises its error from `fit()`.

    The next four are those of Train V2. `max_preemption_failures` is its name for
    `max_preemptions`. `controller_failure_limit` has no effect: the controller is the script, and
    a restore continues what it has begun. `relax_collectives_on_preemption` has none either: a
    SIGTERM to one rank reaches all, and they save together. `preemption_grace_s`: seconds in which
    a trial can still report a checkpoint after SIGTERM.

    The rest is holdfast's own. Each kind of failure that the user's code did not cause has its own
    budget, counted like `max_failures`; None counts it towards `max_failures`. `max_lost_workers`:
    the worker process was killed, crashed or hung. `max_out_of_memory`: the kernel killed it
    because memory ran out. `max_preemptions`: another process sent it SIGTERM.

    `retry_wait_s`: seconds before the first retry of a trial. It doubles with each retry up to
    `longest_retry_wait_s`; each wait is a random share of it between a half and all.
    `reset_on_progress`: a new checkpoint resets all budgets of the trial. `max_errored_trials`:
    the run ends, and can be restored, when more trials than this have errored for good; None for
    no limit. `hang_timeout_s`: seconds without a report after which a worker counts as hung: its
    stack is written to the trial's stderr, and it is killed; None for never.
    `lost_worker_absence_s`: seconds for which an elastic worker group that has lost a worker does
    not look for another.

    Raises InvalidConfig.
    """

    max_failures: int = 0
    fail_fast: bool | str = False
    controller_failure_limit: int = -1
    max_preemption_failures: int = -1
    relax_collectives_on_preemption: bool = False
    preemption_grace_s: float = 5.0
    _: KW_ONLY
    max_lost_workers: int | None = None
    max_out_of_memory: int | None = None
    max_preemptions: int | None = -1
    retry_wait_s: float = 0.0
    longest_retry_wait_s: float = 300.0
    reset_on_progress: bool = False
    max_errored_trials: int | None = None
    hang_timeout_s: float | None = None
    lost_worker_absence_s: float = 30.0

    def __post_init__(self) -> None:
        for name in _BUDGETS:
            most = getattr(self, name)
            shared = most is None and name in _SHARED_BUDGETS
            require(
                shared or (is_count(most) and most >= -1),
                f"{name} must be 0 or more, or -1 for no limit, not {most!r}",
            )
        if self.max_preemption_failures != -1:
            require(
                self.max_preemptions in (-1, self.max_preemption_failures),
                f"max_preemptions={self.max_preemptions!r} and max_preemption_failures="
                f"{self.max_preemption_failures!r} are two names of one setting: pass one",
            )
            object.__setattr__(self, "max_preemptions", self.max_preemption_failures)
        require(
            isinstance(self.fail_fast, bool) or self.fail_fast == "raise",
            f"fail_fast must be True, False or 'raise', not {self.fail_fast!r}",
        )
        require(
            not (self.fail_fast and self.max_failures),
            f"fail_fast={self.fail_fast!r} ends the run at the first failure, so "
            f"max_failures={self.max_failures} would never be used: set one of them",
        )
        errored = self.max_errored_trials
        require(
            errored is None or (is_count(errored) and errored >= 0),
            f"max_errored_trials must be 0 or more, or None for no limit, not {errored!r}",
        )
        for name in (
            "retry_wait_s",
            "longest_retry_wait_s",
            "preemption_grace_s",
            "lost_worker_absence_s",
        ):
            seconds = getattr(self, name)
            require(
                is_number(seconds) and 0 <= seconds < math.inf,
                f"{name} must be a number of seconds, 0 or more, not {seconds!r}",
            )
        hang = self.hang_timeout_s
        require(
            hang is None or (is_number(hang) and 0 < hang < math.inf),
            f"hang_timeout_s must be a number of seconds above 0, or None, not {hang!r}",
        )


@explains_keywords
@dataclass(unsafe_hash=True)
class SyncConfig(Assignable):
    """How files in the local directory reach storage.

    `sync_period`: seconds between two uploads of files that do not belong to a checkpoint.
    `sync_timeout`: seconds without progress after which an upload counts as failed.
    `sync_artifacts`: whether the files that a trial writes to its working directory are uploaded;
    `sync_artifacts_on_checkpoint`: whether also with each checkpoint. `restore_artifacts`: whether
    a trial that resumes on another machine finds these files in its working directory there.
    `syncer`, of older versions of Ray, may be None or "auto": there is nothing to choose.

    Raises InvalidConfig.
    """

    sync_period: Limit = 300
    sync_timeout: Limit = 1800
    sync_artifacts: bool = False
    sync_artifacts_on_checkpoint: bool = True
    restore_artifacts: bool = field(default=False, kw_only=True)
    syncer: str | None = field(default=None, kw_only=True, repr=False, compare=False)

    def __post_init__(self) -> None:
        require(
            self.syncer in (None, "auto"),
            f"SyncConfig(syncer={self.syncer!r:.100}): files reach any folder or bucket without a "
            "syncer. Leave it out, and use RunConfig(storage_path=...)",
        )
        object.__setattr__(self, "syncer", None)
        for name in ("sync_period", "sync_timeout"):
            seconds = getattr(self, name)
            require(
                isinstance(seconds, (int, float)) and seconds > 0,
                f"{name} must be a number of seconds above 0, not {seconds!r}",
            )


@made_of_numbers
@dataclass(frozen=True)
class LoggingConfig:
    """`log_level`: the level of the logger "holdfast" in the script: a name of `logging`, or a
    number.

    Raises InvalidConfig.
    """

    log_level: int | str = "INFO"

    def __post_init__(self) -> None:
        level = self.log_level
        require(
            is_count(level) or (isinstance(level, str) and level.upper() in _LEVELS),
            f"LoggingConfig(log_level={level!r:.100}) must be one of {', '.join(_LEVELS)}",
        )

    @property
    def level(self) -> int | str:
        """The level as `logging` takes it."""
        return self.log_level.upper() if isinstance(self.log_level, str) else self.log_level


_LEVELS = ("CRITICAL", "ERROR", "WARNING", "INFO", "DEBUG")


@explains_keywords
@dataclass(unsafe_hash=True)
class RunConfig(Assignable):
    """Where a run keeps its results, when it stops, and how it handles failures.

    `name`: the experiment's folder; None for a name made from the trainable's name and the time.
    `storage_path`: the folder or bucket that holds it, as a path or a URI; None for RAY_STORAGE
    or, if that is not set, the local directory (`~/ray_results`). With a `storage_filesystem` (a
    `pyarrow.fs.FileSystem` or an fsspec one) it is a path in that filesystem. `failure_config`,
    `checkpoint_config`, `sync_config`: what to retry, which checkpoints to keep, and how uploads
    run. `stop` ends trials: a dict of metric to bound, a function of (trial_id, result) that
    returns True, a Stopper, or a list of Stoppers. `callbacks`: a list of Callback objects.

    `verbose`: 0 prints only failures, 1 or None also the progress, 2 a line for each trial that
    starts or ends and for each of its results, 3 all values of each result. `progress_reporter`
    replaces the progress table. `log_to_file`: the names of the files for a trial's stdout and
    stderr, as a pair, or one name for both; by default `stdout` and `stderr`.

    `runtime_env`: `{"env_vars": {...}, "working_dir": ...}` for the workers of this experiment; it
    overrides that of `holdfast.init`. Every worker receives the variables, and no file holds them:
    pass them to each restore again. `worker_runtime_env` is Train V2's name for it.
    `logging_config`: the level of holdfast's own log.

    `tags`: a dict of texts that label the run, such as `{"data": "v3"}`; a number becomes text.
    They are in tables of results as `tag/data`, and `holdfast ls --tag data=v3` finds the run. A
    restore keeps those that the run began with. `web`: serve a page that shows this run, in a
    process of its own, and print its URL; needs holdfast[web]. `local_dir` is the older name of
    `storage_path`.

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
    tags: Mapping[str, Any] | None = field(default=None, kw_only=True, hash=False)
    worker_runtime_env: Mapping[str, Any] | RuntimeEnv | None = field(
        default=None, kw_only=True, repr=False, compare=False
    )
    logging_config: LoggingConfig | None = field(default=None, kw_only=True)
    web: bool = field(default=False, kw_only=True)
    local_dir: Any = field(default=None, kw_only=True, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._take_worker_runtime_env()
        self._take_local_dir()
        require(
            self.logging_config is None or isinstance(self.logging_config, LoggingConfig),
            f"logging_config must be a LoggingConfig, not {self.logging_config!r:.100}",
        )
        require(isinstance(self.web, bool), f"web must be True or False, not {self.web!r:.100}")
        object.__setattr__(self, "tags", _tags_of(self.tags))
        environment = runtime_env_of(self.runtime_env, where="RunConfig(runtime_env=...)")
        object.__setattr__(self, "runtime_env", environment)
        for name, kind in _PARTS.items():
            part = getattr(self, name)
            if part is None:
                object.__setattr__(self, name, kind())
            else:
                require(isinstance(part, kind), f"{name} must be a {kind.__name__}, not {part!r}")
        self._check_name()
        require(
            self.verbose in (None, 0, 1, 2, 3), f"verbose must be 0 to 3, not {self.verbose!r}"
        )
        self._combine_stop()
        check_stop(self.stop)
        self._check_log_to_file()
        if self.callbacks is not None:
            require(
                isinstance(self.callbacks, Sequence) and not isinstance(self.callbacks, str),
                f"callbacks must be a list of Callback objects, not {self.callbacks!r}",
            )

    def _combine_stop(self) -> None:
        if isinstance(self.stop, (list, tuple)):
            object.__setattr__(self, "stop", CombinedStopper(*self.stop))

    def _take_worker_runtime_env(self) -> None:
        if self.worker_runtime_env is None:
            return
        require(
            self.runtime_env is None,
            "worker_runtime_env and runtime_env are two names of one setting: pass one",
        )
        object.__setattr__(self, "runtime_env", self.worker_runtime_env)
        # One holds it, so that `replace` keeps it and no copy holds the values twice.
        object.__setattr__(self, "worker_runtime_env", None)

    def _take_local_dir(self) -> None:
        if self.local_dir is None:
            return
        require(
            self.storage_path is None,
            "local_dir is the older name of storage_path: pass storage_path only",
        )
        _log.warning(
            "local_dir is the older name of storage_path: results are kept in %s", self.local_dir
        )
        object.__setattr__(self, "storage_path", self.local_dir)
        object.__setattr__(self, "local_dir", None)  # one holds it, so that `replace` works

    def _check_name(self) -> None:
        name = self.name
        require(
            name is None or (isinstance(name, str) and name not in ("", ".", "..")),
            f"name must be a non-empty string, not {name!r}",
        )
        require(
            name is None or not any(sign in name for sign in "/\\\0"),
            f"name is one folder of the storage path and cannot contain a slash: {name!r}. Put "
            "the folders above it into storage_path",
        )

    def _check_log_to_file(self) -> None:
        value = self.log_to_file
        require(
            isinstance(value, (bool, str))
            or (
                isinstance(value, (tuple, list))
                and len(value) == 2
                and all(isinstance(part, str) for part in value)
            ),
            f"log_to_file must be True, a file name, or a pair of file names, not {value!r}",
        )


def _tags_of(tags: Mapping[str, Any] | None) -> dict[str, str]:
    require(
        tags is None or isinstance(tags, Mapping),
        f'tags must be a dict such as {{"data": "v3"}}, not {tags!r:.100}',
    )
    found = {}
    for name, value in dict(tags or {}).items():
        require(
            isinstance(name, str) and name != "" and name.isprintable() and "=" not in name,
            f"tags: the name {name!r:.100} must be text without '='",
        )
        require(
            isinstance(value, (str, int, float)),
            f"tags[{name!r}] must be text or a number, not {value!r:.100}",
        )
        found[name] = str(value)
    return found


def check_stop(stop: object) -> None:
    """Raise InvalidConfig if `stop` is not a stop condition."""
    require(
        not isinstance(stop, (list, tuple, set, frozenset)),
        f"stop must be one condition, not {stop!r:.100}. To combine several Stoppers, pass "
        "CombinedStopper(a, b)",
    )
    require(
        not isinstance(stop, type),
        f"stop must be an object, not the class {getattr(stop, '__name__', '')}: call it to make "
        "one",
    )
    require(
        stop is None or isinstance(stop, (Mapping, Stopper)) or callable(stop),
        f"stop must be a dict of metric to bound, a function of (trial_id, result) or a "
        f"Stopper, not {stop!r}",
    )
    if isinstance(stop, Mapping):
        for key, bound in stop.items():
            require(
                isinstance(plain_number(bound), (int, float)) and not math.isnan(bound),
                f"stop[{key!r}] must be a number (or a bool), not {bound!r}",
            )


_PARTS: dict[str, type] = {
    "failure_config": FailureConfig,
    "checkpoint_config": CheckpointConfig,
    "sync_config": SyncConfig,
}
