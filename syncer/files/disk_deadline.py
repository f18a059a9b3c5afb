"""A disk that does not answer: a call that waits for it has a deadline, and is then left.

On a dead NFS server, or a stuck disk, an fsync never returns, and nothing can interrupt it. So a
thread that nobody joins makes the call. Whoever waits for it waits for so long: the user hears of
it, and later the call counts as failed (`NoAnswer`), like any other error of the disk. A run, its
projector and its uploader say how long they wait (`wait_at_most`). For all others there is no
deadline.
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
# A checkpoint's file may be written to the disk as a whole by its fsync.
_SLOWEST_BYTES_PER_S = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Terms:
    deadline_s: float
    tell: Callable[[str], None]


_terms: ContextVar[_Terms | None] = ContextVar("holdfast_disk", default=None)


def wait_at_most(deadline_s: float, tell: Callable[[str], None]) -> None:
    """How long this thread, and what it begins from now on, waits for a disk; 0 for no deadline.

    `tell` hears before that of each call that takes long, in the thread that waits for it.
    """
    _terms.set(_Terms(deadline_s=deadline_s, tell=tell) if deadline_s else None)


@contextmanager
def waiting_at_most(deadline_s: float, tell: Callable[[str], None]) -> Iterator[None]:
    """The same for a while."""
    before = _terms.get()
    wait_at_most(deadline_s, tell)
    try:
        yield
    finally:
        _terms.set(before)


def answered(perform: Callable[[], R], what: Callable[[], str], *, size_bytes: int = 0) -> R:
    """What the disk answers to this call; `what` says what was asked, with the path. It may take a
    second more for each 4 MiB of `size_bytes`.

    Raises NoAnswer.
    """
    terms = _terms.get()
    if terms is None:
        return perform()
    # Whoever has a deadline has a loop; for others its import costs more than an fsync.
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
        # Twice half of the rest: while a job is suspended, the time of one wait passes.
        rest_s = (deadline_s - told_after_s) / 2
        if not (asked.has_ended(rest_s) or asked.has_ended(rest_s)):
            raise NoAnswer(errno.ETIMEDOUT, silent_for(deadline_s))
    return asked.result()


def silent_for(seconds: float) -> str:
    """The words for it."""
    return f"the disk has not answered for {seconds:g} s"
