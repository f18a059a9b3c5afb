"""The wait for the first node, and what the user reads before and after it joins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from holdfast.runtime.errors import LaunchFailed, NoNodes


class FirstNode:
    """Each text is shown once."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        """`tell` shows a warning."""
        self._tell = tell
        self._refusals: list[str] = []
        self._told: set[str] = set()
        self._untold: list[str] = []
        # Its notice when it has loaded.
        self.notice: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.notice.add_done_callback(_retrieve)

    @property
    def is_known(self) -> bool:
        """Whether there was one, or the wait has failed."""
        return self.notice.done()

    def joined(self, notice: str) -> None:
        if not self.is_known:
            self.notice.set_result(notice)
            for text in self._untold:
                self.tell(text)

    def fail(self, error: LaunchFailed) -> None:
        if not self.is_known:
            self.notice.set_exception(error)

    def refuse(self, problem: str) -> None:
        """An agent cannot be a node; another one may."""
        self._refusals.append(problem)

    def give_up(self) -> None:
        """Fail if an agent was refused: no other one is left."""
        if self._refusals:
            text = "; ".join(dict.fromkeys(self._refusals))
            self.fail(NoNodes(f"Each node was refused: {text}"))

    def tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._tell(text)

    def tell_later(self, text: str) -> None:
        """Tell once the first node has joined: if none does, the error says the same."""
        if self.is_known:
            self.tell(text)
        else:
            self._untold.append(text)

    def tell_or_fail(self, text: str, error: LaunchFailed) -> None:
        if self.is_known:
            self.tell(text)
        else:
            self.fail(error)


def _retrieve(first: asyncio.Future[Any]) -> None:
    """An error that nobody waits for any more is not logged."""
    if not first.cancelled():
        first.exception()
