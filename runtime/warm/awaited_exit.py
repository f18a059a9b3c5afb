"""Waits for the exit of a worker that was killed, and for the parent that should report it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from holdfast.runtime.deadlines import happens
from holdfast.runtime.process_exits import EXIT_DEADLINE_S
from holdfast.runtime.stopped import Watched, is_stopped_now
from holdfast.runtime.warm.pending_launches import ANSWER_S, PendingLaunches
from holdfast.runtime.warm.succession import Forker

# Before this time, a parent that does not answer has been killed, and its workers with it.
LEFT_AFTER_S = ANSWER_S + 3 * EXIT_DEADLINE_S


async def exit_of(
    exit_known: asyncio.Event,
    forker: Forker,
    *,
    launches: PendingLaunches,
    parents: Callable[[], Sequence[Watched]],
    abandon: Callable[[], object],
) -> None:
    """Wait until `exit_known` is set. `forker` is the process that forked the worker.

    Kills parents that were stopped (SIGSTOP), and a `forker` that does not answer for `ANSWER_S`:
    the kernel then kills the workers that they have forked. If the forker answers, the worker
    itself hangs in the kernel: this calls `abandon` after `LEFT_AFTER_S` and stops waiting.
    """
    waited_s, is_asked = 0.0, False
    while not await happens(exit_known, EXIT_DEADLINE_S):
        waited_s += EXIT_DEADLINE_S
        stopped = [one for one in parents() if is_stopped_now(one.pid)]
        for one in stopped:
            one.kill("it was stopped from outside (SIGSTOP) and could not end its workers")
        if not (stopped or is_asked):
            is_asked = True
            launches.ask(forker)
        if waited_s > LEFT_AFTER_S:
            abandon()
            return
