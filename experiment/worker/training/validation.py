"""The validation of a checkpoint, as a part of its report."""

from __future__ import annotations

import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from typing import Any, Protocol

from holdfast.dataclass import dataclass
from holdfast.experiment.worker.metrics import plain_metrics
from holdfast.plain_numbers import is_number, made_of_numbers
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.trial.errors import InvalidConfig, InvalidMetrics
from holdfast.trial.trial import Validation


class ValidationFn(Protocol):
    """A function of a checkpoint, and of `fn_kwargs`, that returns metrics."""

    def __call__(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """Validate the checkpoint, which is the first argument."""


@made_of_numbers
@dataclass(frozen=True)
class ValidationTaskConfig:
    """`fn_kwargs`: further arguments of the validation function. `timeout_s`: seconds after which
    a validation is interrupted; None for no such limit.

    The other ranks wait for the validation: one that takes longer than HOLDFAST_BARRIER_TIMEOUT_S
    ends the attempt. Raises InvalidConfig.
    """

    fn_kwargs: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "fn_kwargs", dict(self.fn_kwargs or {}))
        most = self.timeout_s
        if most is not None and not (is_number(most) and most > 0):
            raise InvalidConfig(
                f"ValidationTaskConfig(timeout_s={most!r}) must be seconds above 0, or None"
            )


@dataclass(frozen=True)
class ValidationConfig:
    """How `report(..., validation=True)` validates a checkpoint: with `fn(checkpoint,
    **fn_kwargs)`, a ValidationFn. `task_config` has the arguments where a report gives none.

    `fn` runs in the rank that has joined the checkpoint's files, before `report()` returns in any
    rank. So its metrics are in the row and the journal together with the checkpoint, and a restore
    has both or neither. `ray_remote_kwargs` has no effect: no other process is started.

    Raises InvalidConfig.
    """

    fn: ValidationFn
    task_config: ValidationTaskConfig | None = None
    ray_remote_kwargs: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if not callable(self.fn):
            raise InvalidConfig(
                f"ValidationConfig(fn={self.fn!r:.100}) must be a function of a checkpoint"
            )

    def task(self, asked: bool | ValidationTaskConfig) -> ValidationTaskConfig:
        """The task of a report with `validation=asked`."""
        usual = self.task_config or ValidationTaskConfig()
        if not isinstance(asked, ValidationTaskConfig):
            return usual
        return ValidationTaskConfig(
            fn_kwargs={**usual.fn_kwargs, **asked.fn_kwargs},
            timeout_s=usual.timeout_s if asked.timeout_s is None else asked.timeout_s,
        )

    def run(
        self, checkpoint: Checkpoint, asked: bool | ValidationTaskConfig
    ) -> tuple[Validation, dict[str, Any]]:
        """Call the function. An exception in it is printed; it does not fail the training."""
        task = self.task(asked)
        try:
            with interrupted_after(task.timeout_s):
                found = self.fn(checkpoint, **task.fn_kwargs)
            if not isinstance(found, Mapping):
                raise InvalidMetrics(
                    f"the validation function must return a dict of metrics, not {found!r:.100}"
                )
            return Validation.VALIDATED, plain_metrics(found)
        except _TooLate:
            _say(f"the validation of {checkpoint.path} took longer than {task.timeout_s:g} s")
            return Validation.VALIDATION_TIMEOUT, {}
        except Exception:  # printed: the report has its checkpoint, without these metrics
            _say(f"the validation of {checkpoint.path} failed:\n{traceback.format_exc()}")
            return Validation.VALIDATION_FAILED, {}


class _TooLate(BaseException):
    """Unwinds a validation: not an Exception, so that `except Exception` lets it pass."""


@contextmanager
def interrupted_after(seconds: float | None) -> Iterator[None]:
    """Raise _TooLate in the block when the time is over. Raises InvalidConfig in a thread other
    than the main one, where no signal can do that."""
    if seconds is None:
        yield
        return
    if threading.current_thread() is not threading.main_thread():
        raise InvalidConfig(
            f"ValidationTaskConfig(timeout_s={seconds:g}) works in the main thread only: call "
            f"report() there, or leave timeout_s out"
        )

    def interrupt(*_: object) -> None:
        raise _TooLate

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _say(text: str) -> None:
    print(f"holdfast: {text}", file=sys.stderr, flush=True)
