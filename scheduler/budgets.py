"""The budget that a failure counts against, and whether and when the trial is retried."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from holdfast.trial.config import FailureConfig
from holdfast.trial.errors import Failure
from holdfast.trial.trial import Budget, Trial

# The kinds of failures with their own budgets; the user's code causes all others.
_BUDGETS: Mapping[str, Budget] = {
    "lost": Budget.LOST_WORKERS,
    "hang": Budget.LOST_WORKERS,
    "memory": Budget.OUT_OF_MEMORY,
    "preempted": Budget.PREEMPTIONS,
}


def budget_of(failure: Failure, config: FailureConfig) -> Budget | None:
    """The budget that the failure counts against; None if it counts against none.

    An unreadable checkpoint is not a failure of the trial, and each can be lost only once.
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
    """How many failures of this kind are retried: -1 for all; None if the budget is not set."""
    limit: int | None = getattr(config, f"max_{budget}")
    return limit


def wait_s(trial: Trial, config: FailureConfig, seed: int) -> float:
    """Seconds until a failed trial may start again: exponential backoff with jitter.

    Replaying the journal must give the same result, so the jitter is drawn from values that it
    holds.
    """
    if not config.retry_wait_s:
        return 0.0
    doubled = config.retry_wait_s * 2.0 ** min(max(trial.setbacks - 1, 0), 62)
    drawn = zlib.crc32(f"{seed} {trial.trial_id} {trial.attempt}".encode()) / 2**32
    return min(doubled, config.longest_retry_wait_s) * (0.5 + drawn / 2)
