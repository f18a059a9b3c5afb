"""What a failure counts against, whether there is another attempt, and when."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from holdfast.trial.config import FailureConfig
from holdfast.trial.errors import Failure
from holdfast.trial.trial import Budget, Trial

# Each kind of failure that may have a budget of its own; the others are the user code's.
_BUDGETS: Mapping[str, Budget] = {
    "lost": Budget.LOST_WORKERS,
    "hang": Budget.LOST_WORKERS,
    "memory": Budget.OUT_OF_MEMORY,
    "preempted": Budget.PREEMPTIONS,
}


def budget_of(failure: Failure, config: FailureConfig) -> Budget | None:
    """The budget that the failure is charged to; None where it counts against nothing.

    A checkpoint that could not be had is no fault of the trial, and each is lost only once.
    """
    if failure.kind == "checkpoint":
        return None
    own = _BUDGETS.get(failure.kind, Budget.FAILURES)
    return Budget.FAILURES if limit_of(own, config) is None else own


def has_left(trial: Trial, budget: Budget, config: FailureConfig) -> bool:
    """Whether the budget allows another attempt."""
    limit = limit_of(budget, config)
    return limit == -1 or limit is None or budget.spent(trial) < limit


def limit_of(budget: Budget, config: FailureConfig) -> int | None:
    """How many failures of its kind are tried again: -1 for all; None where it has no budget of
    its own."""
    limit: int | None = getattr(config, f"max_{budget}")
    return limit


def wait_s(trial: Trial, config: FailureConfig, seed: int) -> float:
    """Seconds until a trial that has failed may start again: exponential backoff with jitter.

    A fold of the journal must come to the same, so that chance is drawn from what it knows.
    """
    if not config.retry_wait_s:
        return 0.0
    doubled = config.retry_wait_s * 2.0 ** min(max(trial.setbacks - 1, 0), 62)
    drawn = zlib.crc32(f"{seed} {trial.trial_id} {trial.attempt}".encode()) / 2**32
    return min(doubled, config.longest_retry_wait_s) * (0.5 + drawn / 2)
