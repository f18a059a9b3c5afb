"""Asks a warm parent whether it still answers, if a worker that it should fork stays silent.

A worker may be silent for a long time, because a fresh interpreter repeats all imports. The parent
only performs orders, so it answers at once, unless it hangs in the kernel or in a lock that one of
the user's modules has left locked.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from functools import partial

from holdfast.late import Timer
from holdfast.runtime.warm.succession import Forker

# The time from an order to the question, and from the question to a kill without an answer.
ANSWER_S = 60.0


class PendingLaunches:
    """The workers that were ordered and are not known to exist yet."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._tokens = itertools.count(1)
        self._asked: dict[int, Forker] = {}

    def ordered(self, forker: Forker, has_started: Callable[[], bool]) -> None:
        """`forker` has the order to fork a worker; `has_started()` says whether it exists."""
        Timer(self._loop, ANSWER_S, partial(self._ask, forker, has_started))

    def answered(self, token: int) -> None:
        """The forker has answered, so it will report the worker later."""
        self._asked.pop(token, None)

    def _ask(self, forker: Forker, has_started: Callable[[], bool]) -> None:
        if has_started() or not forker.is_open:
            return
        if forker.is_loading:
            self.ordered(forker, has_started)
            return
        self.ask(forker)

    def ask(self, forker: Forker) -> None:
        """Send a question to `forker`, and kill it if it does not answer within `ANSWER_S`."""
        token = next(self._tokens)
        self._asked[token] = forker
        forker.send(["ping", token])
        Timer(self._loop, ANSWER_S, partial(self._judge, token))

    def _judge(self, token: int) -> None:
        if (forker := self._asked.pop(token, None)) is not None:
            forker.kill(f"it did not answer for {ANSWER_S:g} s")
