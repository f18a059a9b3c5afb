"""Errors as text that fits into a message: whatever user code raises, its type gets through."""

from __future__ import annotations

import traceback
from types import TracebackType

# More than any person reads, and far less than a frame may have: one message and one traceback.
LONGEST_TEXT = 1 << 16
_LONGEST_NAME = 256


def shortened(text: str, longest: int = LONGEST_TEXT) -> str:
    """`text` with its middle left out where it is longer: both ends say what went wrong."""
    if len(text) <= longest:
        return text
    note = f"\n[... {len(text) - longest:,} characters left out ...]\n"
    half = (longest - len(note)) // 2
    return f"{text[:half]}{note}{text[-half:]}"


def type_name(error: BaseException) -> str:
    return shortened(str(type(error).__qualname__), _LONGEST_NAME)


def message_of(error: BaseException) -> str:
    """`str(error)`, shortened."""
    try:
        return shortened(str(error))
    except BaseException as broken:  # a broken __str__ must not hide the error
        return f"(its __str__ raised {type_name(broken)})"


def traceback_of(error: BaseException, begin: TracebackType | None) -> str:
    """The traceback from `begin` on, with the errors that led to it, shortened."""
    try:
        lines = traceback.format_exception(type(error), error.with_traceback(begin), begin)
    except BaseException as broken:
        # A chain of errors that is too deep, or an attribute that raises: its own frames remain.
        frames = traceback.format_tb(begin)
        why = f"(the rest cannot be shown: {type_name(broken)})\n"
        lines = [*frames, why, f"{type_name(error)}: {message_of(error)}\n"]
    return shortened("".join(lines))
