"""What follows a finished function or class: its errors are shown, and fail nothing."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def fails_nothing() -> Iterator[None]:
    """Print an exception of this block to stderr: the trial has done its work before."""
    try:
        yield
    except Exception:  # the user's code has broken what the clean-up needs: stderr tells them
        tell(f"holdfast: after the end, which it does not change: {traceback.format_exc()}")


def tell(text: str) -> None:
    """Print a line to stderr, which user code may have closed or replaced by anything."""
    with suppress(Exception):
        print(text, file=sys.stderr)
