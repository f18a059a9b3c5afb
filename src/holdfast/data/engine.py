"""Settings of Ray's engine for datasets, which scripts make: accepted, and without effect."""

from __future__ import annotations

from typing import Any, Self

from holdfast.experiment.worker.train_loop import ExecutionOptions


class DataContext(ExecutionOptions):
    """Any attribute can be set. A dataset is read in the process that needs its rows."""

    _current: Self | None = None

    @classmethod
    def get_current(cls) -> Self:
        """The same object in each call."""
        cls._current = cls._current or cls()
        return cls._current


class ExecutionResources(ExecutionOptions):
    __doc__ = ExecutionOptions.__doc__


class _Strategy:
    """For `map_batches(compute=...)`: each process that needs rows makes them itself."""

    def __init__(self, size: int | None = None, **options: Any) -> None:
        self.size, self.options = size, options


class ActorPoolStrategy(_Strategy):
    __doc__ = _Strategy.__doc__


class TaskPoolStrategy(_Strategy):
    __doc__ = _Strategy.__doc__
