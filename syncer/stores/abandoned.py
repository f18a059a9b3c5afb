"""Changes that passed their deadline, and may still take effect in the storage."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from holdfast.syncer.errors import StorageUnavailable

R = TypeVar("R")


class AbandonedChanges:
    """The keys of such changes. Another change of the same key must wait for the earlier one,
    which could otherwise overwrite it."""

    def __init__(self) -> None:
        self._keys: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def check(self, operation: str, key: str, where: str) -> None:
        """Raise StorageUnavailable if an earlier change of the key may still take effect."""
        if key in self._keys:
            cause = "an earlier change of it timed out and may still take effect"
            raise StorageUnavailable(operation, where, cause)

    def add(self, keys: Iterable[str]) -> None:
        self._keys.update(keys)

    def remove(self, keys: Iterable[str]) -> None:
        self._keys.difference_update(keys)

    @contextmanager
    def tracked(self, key: str, perform: Callable[[], R]) -> Iterator[Callable[[], R]]:
        """Wrap `perform` for a call in a thread inside this block. If the block ends before the
        call, the key counts as abandoned until the call has ended."""
        began, ended = threading.Event(), threading.Event()

        def run() -> R:
            began.set()
            try:
                return perform()
            finally:
                ended.set()
                self._keys.discard(key)

        try:
            yield run
        finally:
            if began.is_set() and not ended.is_set():
                self._keys.add(key)
                if ended.is_set():
                    self._keys.discard(key)
