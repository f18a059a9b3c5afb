"""Deadlines for calls to a disk that does not answer.

On a dead NFS server or a stuck disk, an fsync never returns and cannot be interrupted. So a thread
that is never joined makes the call. If it takes long, the user gets a warning, and later the call
counts as failed (`NoAnswer`), like any other error of the disk. A run, its projector and its
uploader set the deadline (`wait_at_most`). Other programs have none.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeVar

from holdfast.dataclass import dataclass
from holdfast.syncer.errors import NoAnswer

R = TypeVar("R")

VARIABLE: Final = "HOLDFAST_DISK_DEADLINE_S"
_TOLD_AFTER_S = 30.0
# An fsync may have to write a whole checkpoint file to the disk.
_SLOWEST_BYTES_PER_S = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Terms:
    deadline_s: float
    tell: Callable[[str], None]


_terms: ContextVar[_Terms | None] = ContextVar("holdfast_disk", default=None)


def wait_at_most(deadline_s: float, tell: Callable[[str], None]) -> None:
    """Set the deadline for this thread and the tasks that it starts from now on; 0 for none.

    Before the deadline, `tell` is called with a warning about a slow call, in the waiting thread.
    """
    _terms.set(_Terms(deadline_s=deadline_s, tell=tell) if deadline_s else None)


@contextmanager
def waiting_at_most(deadline_s: float, tell: Callable[[str], None]) -> Iterator[None]:
    """Like `wait_at_most`, inside this block."""
    before = _terms.get()
    wait_at_most(deadline_s, tell)
    try:
        yield
    finally:
        _terms.set(before)


def answered(perform: Callable[[], R], what: Callable[[], str], *, size_bytes: int = 0) -> R:
    """Make a call to the disk; `what` describes it, with the path. The deadline is a second longer
    for each 4 MiB of `size_bytes`.

    Raises NoAnswer.
    """
    terms = _terms.get()
    if terms is None:
        return perform()
    # Imported here because it imports asyncio, which takes longer than an fsync. Processes with a
    # deadline have imported it anyway.
    from holdfast.syncer.files.threads import ThreadCall

    try:
        asked = ThreadCall(perform)
    except RuntimeError:  # no thread can be started: a call without a deadline is better than none
        return perform()
    told_after_s = min(_TOLD_AFTER_S, terms.deadline_s / 2)
    deadline_s = terms.deadline_s + size_bytes // _SLOWEST_BYTES_PER_S
    if not asked.has_ended(told_after_s):
        terms.tell(
            f"the disk has not answered for {told_after_s:g} s: {what()}. After "
            f"{deadline_s:g} s ({VARIABLE}) this counts as failed"
        )
        # Two waits for half of the rest: if the job is suspended, only one of them passes.
        rest_s = (deadline_s - told_after_s) / 2
        if not (asked.has_ended(rest_s) or asked.has_ended(rest_s)):
            raise NoAnswer(errno.ETIMEDOUT, silent_for(deadline_s))
    return asked.result()


def silent_for(seconds: float) -> str:
    """The message about a disk that does not answer."""
    return f"the disk has not answered for {seconds:g} s"
