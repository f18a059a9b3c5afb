"""Settings of Ray's engine for datasets, which scripts make: accepted, and without effect."""

from __future__ import annotations

from typing import Any, Self


class DataContext:
    """Any attribute can be set. A dataset is read in the process that needs its rows."""

    _current: Self | None = None

    def __init__(self, **settings: Any) -> None:
        self.__dict__.update(settings)

    @classmethod
    def get_current(cls) -> Self:
        """The same object in each call."""
        cls._current = cls._current or cls()
        return cls._current

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__[name] = value


class _Strategy:
    """For `map_batches(compute=...)`: each process that needs rows makes them itself."""

    def __init__(self, size: int | None = None, **options: Any) -> None:
        self.size, self.options = size, options


class ActorPoolStrategy(_Strategy):
    __doc__ = _Strategy.__doc__


class TaskPoolStrategy(_Strategy):
    __doc__ = _Strategy.__doc__
