"""A user's settings for a search, and for resuming one."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import StrEnum
from typing import Any, ClassVar, Literal, get_args

from holdfast.assignable import Assignable
from holdfast.dataclass import dataclass
from holdfast.plain_numbers import is_count
from holdfast.trial.errors import require
from holdfast.unknown_keywords import explains_keywords, several_goals

Mode = Literal["max", "min"]
MODES: tuple[str, ...] = get_args(Mode)


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

    Raises InvalidConfig.
    """

    mode: Mode | None = None
    metric: str | None = None
    search_alg: Any = None
    scheduler: Any = None
    num_samples: int = 1
    max_concurrent_trials: int | None = None
    time_budget_s: Any = None
    reuse_actors: bool = False
    trial_name_creator: Callable[[Any], str] | None = None
    trial_dirname_creator: Callable[[Any], str] | None = None
    chdir_to_trial_dir: bool | None = None

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
        budget = self.budget_seconds
        require(
            budget is None or budget > 0,
            f"time_budget_s must be above 0 seconds, not {self.time_budget_s!r}",
        )

    @property
    def budget_seconds(self) -> float | None:
        """`time_budget_s` in seconds, given as a number or a timedelta; None for no limit."""
        budget = self.time_budget_s
        if budget is None:
            return None
        if hasattr(budget, "total_seconds"):
            return float(budget.total_seconds())
        require(
            isinstance(budget, (int, float)) and not math.isnan(budget),
            f"time_budget_s must be seconds or a timedelta, not {budget!r}",
        )
        return None if budget == math.inf else float(budget)


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
