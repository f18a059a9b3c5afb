"""Makes text of errors and values for messages, even if user code raises or hangs meanwhile.

An error is always reported with its type, and text that user code never finishes is left out.
"""

from __future__ import annotations

import builtins
import threading
import traceback
from collections.abc import Callable
from types import TracebackType

# More than anyone reads, and much less than a frame with a message and a traceback may have.
LONGEST_TEXT = 1 << 16
_LONGEST_NAME = 256
# Longer than any `__str__` takes that ends, even on a busy machine.
TEXT_DEADLINE_S = 10.0
# Python itself makes the text of these types, from the value alone.
_PLAIN = frozenset({str, int, float, bool, bytes, type(None)})
# Attributes that built-in errors show in addition to their arguments.
_NAMED = ("filename", "filename2", "obj")
_LONGEST_CHAIN = 100


def shortened(text: str, longest: int = LONGEST_TEXT) -> str:
    """`text` without its middle if it is too long: both ends say what went wrong."""
    if len(text) <= longest:
        return text
    note = f"\n[... {len(text) - longest:,} characters left out ...]\n"
    half = (longest - len(note)) // 2
    return f"{text[:half]}{note}{text[-half:]}"


def type_name(error: BaseException) -> str:
    # Read it from `type`, because a user's metaclass may override `__qualname__`.
    return shortened(type.__dict__["__qualname__"].__get__(type(error)), _LONGEST_NAME)


def message_of(error: BaseException) -> str:
    """`str(error)`, shortened."""
    return shortened(_made(lambda: str(error), "__str__", is_ours=_is_plain(error)))


def named(error: BaseException) -> str:
    """The type and the message, as in `ValueError: message`."""
    return f"{type_name(error)}: {message_of(error)}"


def excerpt(value: object, longest: int = 80) -> str:
    """The beginning of `repr(value)`."""
    return _made(lambda: repr(value)[:longest], "__repr__", is_ours=type(value) in _PLAIN)


def traceback_of(error: BaseException, begin: TracebackType | None) -> str:
    """The traceback from `begin` on, with its causes, shortened."""

    def whole() -> str:
        lines = traceback.format_exception(type(error), error.with_traceback(begin), begin)
        return "".join(lines)

    text, fault = _attempt(whole, is_ours=_is_plain(error))
    if fault:
        # The chain of errors is too deep, an attribute raises, or a `__str__` does not end: show
        # only the error's own frames.
        why = f"(the rest cannot be shown: {fault})\n"
        what = type_name(error) if fault == _endless() else named(error)
        text = "".join([*traceback.format_tb(begin), why, f"{what}\n"])
    return shortened(text)


def _endless() -> str:
    return f"did not end within {TEXT_DEADLINE_S:g} s"


def _is_plain(error: BaseException) -> bool:
    """True if the text of the error and its causes is made without user code."""
    chain: list[BaseException | None] = [error]
    for one in chain:
        if one is None:
            continue
        is_builtin = type(one) is getattr(builtins, type_name(one), None)
        if not is_builtin or hasattr(one, "__notes__") or len(chain) > _LONGEST_CHAIN:
            return False
        named = (getattr(one, name, None) for name in _NAMED)
        if not all(type(argument) in _PLAIN for argument in (*one.args, *named)):
            return False
        chain += [one.__cause__, one.__context__]
    return True


def _made(make: Callable[[], str], how: str, *, is_ours: bool) -> str:
    """The result of `make`; if it fails, the reason."""
    text, fault = _attempt(make, is_ours=is_ours)
    return f"(its {how} {fault})" if fault else text


def _attempt(make: Callable[[], str], *, is_ours: bool) -> tuple[str, str]:
    """The result of `make`, and why it has failed; "" if it has not.

    Unless `is_ours`, it may run user code, so it runs in a thread that is abandoned after a while:
    a signal could not interrupt a lock that is never released.
    """
    made: list[tuple[str, str]] = []

    def attempt() -> None:
        try:
            made.append((make(), ""))
        except BaseException as broken:  # a broken __str__ must not hide the error
            made.append(("", f"raised {type_name(broken)}"))

    if is_ours:
        attempt()
    else:
        thread = threading.Thread(target=attempt, name="holdfast-safe-text", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no thread can be started, or the interpreter is ending
            attempt()
        else:
            thread.join(TEXT_DEADLINE_S)
    return made[0] if made else ("", _endless())
