"""A user's settings of a run and of a search, checked when they are constructed.

`RunConfig`, `TuneConfig`, `ResumeConfig` and their parts; `runtime_env`; and the options of an
`ExperimentSpec`, which a restore passes to the user's classes, builds paths from and prints.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, field
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final

from holdfast.compat.advice import Assignable, explains_keywords, several_goals
from holdfast.dataclass import dataclass
from holdfast.names import LONGEST_NAME, inner_path, plain_name, shown
from holdfast.plain_numbers import Unset, is_count, is_number, made_of_numbers, plain_number
from holdfast.schema import Checked, Limit, Stored, check_table, converter, wrong
from holdfast.trial.best import LEAST_RUNS
from holdfast.trial.errors import InvalidConfig, require
from holdfast.trial.metrics import MODES, Mode
from holdfast.trial.stoppers import CombinedStopper, Stopper


@explains_keywords
@dataclass(unsafe_hash=True)
class TuneConfig(Assignable):
    """The metric to optimize, and how trials are chosen and scheduled.

    `metric`/`mode` ("max" or "min") name the goal. `num_samples`: how often to repeat the grid; -1
    repeats it until `time_budget_s` or a stopper ends the run. `max_concurrent_trials`: how many
    trials may run at once; None for as many as the resources allow. `time_budget_s`: seconds, or a
    timedelta, after which all trials are stopped. `reuse_actors`: start further trials in existing
    worker processes.

    `search_alg` chooses the configs (None: random and grid search). `scheduler` stops and pauses
    trials (None: every trial runs to its end). Both may be short names, such as "optuna" and
    "asha", for what `create_searcher` and `create_scheduler` return. `trial_name_creator`,
    `trial_dirname_creator`: functions of a trial that return its name and its folder.
    `chdir_to_trial_dir`: whether a trial's working directory is its own folder; None for what
    RAY_CHDIR_TO_TRIAL_DIR says.

    `budget` is a time limit like `time_budget_s`, in seconds, as a timedelta or as text ("2h",
    "90m", "1h 30m"), within which trials end by themselves: none starts that would take longer
    than what is left, by the longest so far, but at most half as long again as the median. One
    that takes longer is stopped when the time is over. What is left at the end stays unused.
    Without `num_samples`, trials start as long as it lasts, unless `search_alg` is None and the
    space has a grid or nothing to draw.

    `confirm`: after the search, the three best configs run so many times again, each time with
    fresh seeds, and the best is the one whose fresh runs have the best mean; 0 for no such runs,
    otherwise at least 2. A `budget` leaves time for them, at most half of it.

    Raises InvalidConfig.
    """

    mode: Mode | None = None
    metric: str | None = None
    search_alg: Any = None
    scheduler: Any = None
    num_samples: int = Unset(1)
    max_concurrent_trials: int | None = None
    time_budget_s: Any = None
    reuse_actors: bool = False
    trial_name_creator: Callable[[Any], str] | None = None
    trial_dirname_creator: Callable[[Any], str] | None = None
    chdir_to_trial_dir: bool | None = None
    budget: Any = None
    confirm: int = 0

    def __post_init__(self) -> None:
        search, scheduler = several_goals(self.metric, self.mode)
        require(
            not any(isinstance(one, (list, tuple)) for one in (self.metric, self.mode)),
            f"metric and mode name one goal, not {self.metric!r} and {self.mode!r}. For several, "
            f"leave them out and use search_alg={search}; to stop trials early, "
            f"scheduler={scheduler}",
        )
        require(
            self.mode in (None, "max", "min"),
            f"mode must be 'max' or 'min', not {self.mode!r}{_mode_meant(self.mode)}",
        )
        require(
            self.metric is None or (isinstance(self.metric, str) and self.metric != ""),
            f"metric must be the name of a reported value, not {self.metric!r}",
        )
        require(
            is_count(self.num_samples) and (self.num_samples > 0 or self.num_samples == -1),
            f"num_samples must be 1 or more, or -1 for no limit, not {self.num_samples!r}",
        )
        most = self.max_concurrent_trials
        require(
            most is None or (is_count(most) and most >= 0),
            "max_concurrent_trials must be a whole number, or 0 or None for no limit, not "
            f"{most!r}",
        )
        require(
            self.chdir_to_trial_dir in (None, True, False),
            f"chdir_to_trial_dir must be True or False, not {self.chdir_to_trial_dir!r}",
        )
        require(
            self.budget is None or self.time_budget_s is None,
            "budget and time_budget_s are both limits of the time: leave one of them out",
        )
        budget = self.budget_seconds
        name, given = self._time_limit
        require(budget is None or budget > 0, f"{name} must be above 0 seconds, not {given!r}")
        require(
            is_count(self.confirm) and (self.confirm == 0 or self.confirm >= LEAST_RUNS),
            f"confirm must be 0 or at least {LEAST_RUNS}, not {self.confirm!r}: an interval needs "
            f"two runs of a config",
        )

    @property
    def budget_seconds(self) -> float | None:
        """`budget` or `time_budget_s` in seconds; None for no limit."""
        name, given = self._time_limit
        if given is None:
            return None
        if hasattr(given, "total_seconds"):
            return float(given.total_seconds())
        if name == "budget" and isinstance(given, str):
            return seconds_of(given, name)
        require(
            isinstance(given, (int, float)) and not math.isnan(given),
            f"{name} must be seconds or a timedelta, not {given!r}",
        )
        return None if given == math.inf else float(given)

    @property
    def _time_limit(self) -> tuple[str, Any]:
        """The setting that limits the time, and its value."""
        if self.budget is not None:
            return "budget", self.budget
        return "time_budget_s", self.time_budget_s


_UNITS_S: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([smhd])")


def seconds_of(text: str, name: str) -> float:
    """`1h 30m` in seconds. Raises InvalidConfig, which calls it by this name."""
    parts = _DURATION.findall(text)
    require(
        bool(parts) and not _DURATION.sub("", text).strip(),
        f"{name} must be a time such as '2h', '90m' or '1h 30m', not {text!r:.100}",
    )
    return sum(float(number) * _UNITS_S[unit] for number, unit in parts)


def _mode_meant(given: object) -> str:
    """A hint for the words of other libraries: `minimize` is `min`."""
    start = str(given).lower()[:3]
    return f". Did you mean {start!r}?" if start in MODES else ""


class ResumeType(StrEnum):
    """What a restore does with a trial: skip it, resume it from its checkpoint, or restart it."""

    SKIP = "skip"
    RESUME = "resume"
    RESTART = "restart"


@dataclass(unsafe_hash=True)
class ResumeConfig(Assignable):
    """What a restore does with the trials of the experiment.

    Each of `finished`, `unfinished` and `errored` is "skip" (leave the trial as it is), "resume"
    (continue from its newest checkpoint) or "restart" (begin from scratch), or a member of
    `ResumeConfig.ResumeType`. With "resume", a finished trial without a checkpoint stays finished.

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
            require(
                isinstance(value, str) and value in known,
                f"{name} must be one of {known}, not {value!r}",
            )
            object.__setattr__(self, name, str(value))


_KNOWN: Final = ("env_vars", "working_dir")
# Of a copy of working_dir, and of a server that makes it: there is neither.
_MOOT: Final = ("excludes", "config", "eager_install")
_WHY: Final = {
    "pip": "workers use the packages of the script's own environment: install them there",
    "uv": "workers use the packages of the script's own environment: install them there",
    "conda": "workers use the script's own environment: activate it before the script starts",
    "container": "workers run where the script runs: start the script in the container",
    "image_uri": "workers run where the script runs: start the script in the container",
    "py_modules": "put the modules into working_dir, or install them",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeEnv:
    """Environment variables and a working directory for every worker; imports search it too.

    The values of the variables are neither shown nor pickled: a pickled RuntimeEnv is empty.
    """

    env_vars: Mapping[str, str] = field(default_factory=dict, repr=False)
    working_dir: str | None = None

    def over(self, other: RuntimeEnv) -> RuntimeEnv:
        """Merge the two; this one overrides `other`."""
        return RuntimeEnv(
            env_vars={**other.env_vars, **self.env_vars},
            working_dir=self.working_dir or other.working_dir,
        )

    def missing(self, names: list[str], environ: Mapping[str, str]) -> list[str]:
        """The `names` that a worker would not find in its environment."""
        return [name for name in names if name not in self.env_vars and name not in environ]

    def __copy__(self) -> RuntimeEnv:
        return self

    def __deepcopy__(self, memo: object) -> RuntimeEnv:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # A trainable that uses its script's RunConfig would carry the values into tuner.pkl.
        return RuntimeEnv, ()


def runtime_env_of(given: Mapping[str, Any] | RuntimeEnv | None, *, where: str) -> RuntimeEnv:
    """Check a user's runtime_env as far as possible without reading the disk.

    Raises InvalidConfig; the message contains no value of a variable.
    """
    if given is None:
        return RuntimeEnv()
    if isinstance(given, RuntimeEnv):
        return given
    if not isinstance(given, Mapping):
        raise InvalidConfig(f"{where} must be a dict, not a {type(given).__name__}")
    for key in given:
        if reason := why_refused(key):
            raise InvalidConfig(f"{where}: {key!r} is not supported: {reason}")
    return RuntimeEnv(
        env_vars=_env_vars(given.get("env_vars"), where),
        working_dir=_working_dir(given.get("working_dir"), where),
    )


def why_refused(key: object) -> str:
    """The reason for which a key of a runtime_env is refused; "" for one that is not."""
    if key in (*_KNOWN, *_MOOT):
        return ""
    return _WHY.get(str(key), f"use {' or '.join(_KNOWN)}")


def _env_vars(variables: Any, where: str) -> dict[str, str]:
    if variables is None:
        return {}
    if not isinstance(variables, Mapping):
        raise InvalidConfig(
            f"{where}: env_vars must be a dict of variables, not a {type(variables).__name__}"
        )
    for name, value in variables.items():
        if not isinstance(name, str) or not isinstance(value, str):
            # The value may be a secret: only its type is named.
            raise InvalidConfig(
                f"{where}: env_vars must map strings to strings; {name!r} is a "
                f"{type(value).__name__}"
            )
        if not name or "=" in name or "\0" in name + value:
            raise InvalidConfig(
                f"{where}: env_vars: {name!r} cannot be an environment variable: names must not "
                "be empty or contain '=', and neither names nor values may contain a NUL "
                "character"
            )
    return dict(variables)


def _working_dir(given: Any, where: str) -> str | None:
    if given is None:
        return None
    path = given.__fspath__() if hasattr(given, "__fspath__") else given
    if not isinstance(path, str) or not path:
        raise InvalidConfig(f"{where}: working_dir must be a directory, not {given!r:.100}")
    if "://" in path or path.lower().endswith((".zip", ".jar", ".whl", ".tar.gz", ".tgz")):
        shown = path.partition("?")[0].rpartition("@")[2]
        raise InvalidConfig(
            f"{where}: working_dir must be a directory on this machine, but {shown!r} is an "
            "archive or a URI: unpack or download it first and pass the directory"
        )
    return path


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
        size = 0 if name is None else len(name.encode(errors="surrogatepass"))
        require(
            size <= LONGEST_NAME,
            f"name is one folder and may have {LONGEST_NAME} bytes, not {size}: {shown(name)}",
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


# The option of a run that enforces the resource memory.
ENFORCED = "enforce_memory"
# The option of a run of a script written for Ray: what Ray only warns of does not end it.
FOR_RAY = "for_ray"
# The option of a run that says where trials run.
CHDIR = "chdir_to_trial_dir"
# How many trials the search makes; None for no limit.
PLANNED = "trials"
# What the script has said of `max_concurrent` and `num_samples`, where a person changed them.
SAID = "said"
# The number of a trial among those of one config of a `Repeater`, in its config.
TRIAL_INDEX = "__trial_index__"


def check_log_names(value: object, name: str = "log_to_file") -> None:
    """Raise ValueError unless `log_to_file` names one or two files inside the trial's folder."""
    if type(value) is bool:
        return
    several = value if isinstance(value, (list, tuple)) else [value]
    if len(several) not in (1, 2):
        raise wrong(name, value, "one name or two names")
    for one in several:
        for part in inner_path(one, name).split("/"):
            plain_name(part, name)


def _verbose(value: Any, name: str) -> Any:
    if value not in (None, 0, 1, 2, 3):
        raise wrong(name, value, "0 to 3")
    return value


def _class_name(value: Any, name: str) -> str:
    """Require an identifier: the name is printed in code that users paste."""
    if type(value) is not str or (value and not value.isidentifier()):
        raise wrong(name, value, "the name of a class")
    return value


def _read_stop(plain: Any) -> Any:
    """The bound of each metric: a number, infinity or a bool."""
    for name, bound in check_table(plain, "stop").items():
        if type(bound) not in (bool, int, float) or bound != bound:
            raise ValueError(f"{shown(name)} must be a number, not {shown(bound)}")
    return plain


def _read_space(plain: Any) -> Any:
    """As `holdfast.trial.search_space.description.describe` returns it."""
    if type(plain) not in (list, tuple):
        raise ValueError(f"must be a list, not {shown(plain)}")
    for part in plain:
        check_table(part, "a part")
        is_path = type(part["path"]) is list and _STEPS.issuperset(map(type, part["path"]))
        if not is_path or type(part["text"]) is not str or type(part["varied"]) is not bool:
            raise ValueError("a part must have a path, a text, and whether it is varied")
    return tuple(plain)


_STEPS = frozenset({str, int})

# The bounds in `RunConfig(stop={...})`.
StopBounds = Annotated[Mapping[str, float], Stored(_read_stop)]
SpaceParts = Annotated[Sequence[Mapping[str, Any]], Stored(_read_space)]
_OPTIONS: Mapping[str, Any] = {
    "sync": SyncConfig,
    "verbose": Annotated[Any, Checked(_verbose)],
    "log_to_file": Annotated[Any, Checked(check_log_names)],
    "objects": Sequence[str],
    "trainer": Annotated[str, Checked(_class_name)],
    "search": str | None,
    "choice": str,
    "stopper": str | None,
    "env_vars": Sequence[str],
    CHDIR: bool,
    "tags": Mapping[str, str],
    ENFORCED: bool,
    "goals": Mapping[str, Mode],
    SAID: Mapping[str, int | None],
    "search_space": SpaceParts,
}


def checked_options(plain: Any) -> Mapping[str, Any]:
    """Return `plain` if its known options have the types that a run writes. Ignores others.

    Raises ValueError.
    """
    options: Mapping[str, Any] = check_table(plain, "options")
    for name, value in options.items():
        if name in _OPTIONS:
            converter(_OPTIONS[name], name)(value)
    return options


Options = Annotated[Mapping[str, Any], Stored(checked_options)]
