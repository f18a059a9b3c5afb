"""Threads in which the user's search and stop functions run, off the control loop, in order."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from holdfast.experiment.metrics import sendable
from holdfast.trial.errors import Failure, TuneError

DEADLINE_S = 300.0


class Advisor:
    """One thread for one piece of user code."""

    def __init__(self, name: str, *, deadline_s: float = DEADLINE_S) -> None:
        self._name = name
        self._deadline_s = deadline_s
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"holdfast-{name}")

    async def ask(self, question: Callable[[], Any]) -> Any:
        """The answer; raises what the user's code raises, TuneError at the deadline."""
        loop = asyncio.get_running_loop()
        try:
            return await asyncio.wait_for(
                loop.run_in_executor(self._pool, question), self._deadline_s
            )
        except TimeoutError as error:
            raise TuneError(
                f"the {self._name} gave no answer within {self._deadline_s:g} s"
            ) from error

    def tell(self, statement: Callable[[], Any]) -> asyncio.Future[Any]:
        """Have `statement` called after all that was asked or told before it."""
        return asyncio.get_running_loop().run_in_executor(self._pool, statement)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def failure_of(error: BaseException, kind: str) -> Failure:
    try:
        message = str(error)
    except Exception:  # a broken __str__ must not hide the error
        message = "(its __str__ raised)"
    return Failure(
        kind=kind,
        type_name=type(error).__qualname__,
        message=sendable(message),
        traceback=sendable("".join(traceback.format_exception(error))),
    )
