"""Workers that were ordered and have not been heard of: their parent is asked whether it answers.

A worker may be silent for long while a fresh interpreter imports what it needs. Its parent only
forks and obeys, so it answers at once, unless it hangs in the kernel or in a lock that a module of
the user's has left. It is asked only while a launch is pending.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from holdfast.runtime.connection import LATE_S
from holdfast.runtime.warm.succession import Forker

# From an order to the question, and from the question to the end of who does not answer.
ANSWER_S = 60.0


class PendingLaunches:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._tokens = itertools.count(1)
        self._asked: dict[int, Forker] = {}

    def ordered(self, forker: Forker, is_born: Callable[[], bool]) -> None:
        """`forker` has the order to fork a worker. `is_born` once the worker is heard of."""
        due = self._loop.time() + ANSWER_S
        self._loop.call_at(due, self._ask, forker, is_born, due)

    def answered(self, token: int) -> None:
        """It answers, so the worker will be heard of in its own time."""
        self._asked.pop(token, None)

    def _ask(self, forker: Forker, is_born: Callable[[], bool], due: float) -> None:
        if is_born() or not forker.is_open:
            return
        if forker.is_loading or self._was_held_up(due):
            self.ordered(forker, is_born)
            return
        self.ask(forker)

    def ask(self, forker: Forker) -> None:
        """Have it answer within `ANSWER_S`; one that does not is killed."""
        token = next(self._tokens)
        self._asked[token] = forker
        forker.send(["ping", token])
        self._await(token)

    def _await(self, token: int) -> None:
        due = self._loop.time() + ANSWER_S
        self._loop.call_at(due, self._judge, token, due)

    def _judge(self, token: int, due: float) -> None:
        forker = self._asked.get(token)
        if forker is None:
            return
        if self._was_held_up(due):
            self._await(token)
            return
        del self._asked[token]
        forker.kill(f"it answered nothing for {ANSWER_S:g} s")

    def _was_held_up(self, due: float) -> bool:
        """Whether this process itself was held up: then the others may have been, too."""
        return self._loop.time() - due > LATE_S
