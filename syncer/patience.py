"""Trying again what storage did not do: longer and longer waits, and an end to them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from holdfast.syncer.errors import StorageError, StorageUnavailable, innermost

T = TypeVar("T")

_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 30.0


class Patience:
    """Tries for `timeout_s` each. `unfinished` says of what is not done yet why, in the words of
    its last failure; `tell` hears of the first one."""

    def __init__(self, *, timeout_s: float, where: str, tell: Callable[[str], None]) -> None:
        self._timeout_s = timeout_s
        self._where = where
        self._tell = tell
        self.unfinished: dict[str, str] = {}

    async def until_done(self, what: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Try until it works; what cannot work later is raised. Raises StorageError."""
        wait = _FIRST_WAIT_S
        self.unfinished[what] = "not done yet"
        try:
            async with asyncio.timeout(self._timeout_s):
                while True:
                    try:
                        return await attempt()
                    except (StorageError, BaseExceptionGroup) as error:
                        self._note_failure(what, innermost(error), is_first=wait == _FIRST_WAIT_S)
                    await asyncio.sleep(wait * random.uniform(0.5, 1.0))
                    wait = min(2 * wait, _LONGEST_WAIT_S)
        except TimeoutError as error:
            cause = f"no success within {self._timeout_s:g} s: {self.unfinished[what]}"
            raise StorageUnavailable(what, self._where, cause) from error
        finally:
            del self.unfinished[what]

    def _note_failure(self, what: str, error: BaseException, *, is_first: bool) -> None:
        """Raises the error if trying again is useless."""
        if not isinstance(error, StorageUnavailable):
            raise error
        self.unfinished[what] = str(error)
        if is_first:
            self._tell(f"{error}; it is tried again")
