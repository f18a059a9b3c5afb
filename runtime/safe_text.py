"""Errors and values as text that fits into a message: whatever user code raises, its type gets
through, and nobody waits for text that user code never finishes."""

from __future__ import annotations

import builtins
import threading
import traceback
from collections.abc import Callable
from types import TracebackType

# More than any person reads, and far less than a frame may have: one message and one traceback.
LONGEST_TEXT = 1 << 16
_LONGEST_NAME = 256
# What any `__str__` that ends takes, also on a machine that does a hundred other things.
PATIENCE_S = 10.0
# Their text is made by Python itself, of what they were given.
_PLAIN = frozenset({str, int, float, bool, bytes, type(None)})
# What built-in errors show besides their arguments: files, and whose attribute is not there.
_NAMED = ("filename", "filename2", "obj")
_LONGEST_CHAIN = 100


def shortened(text: str, longest: int = LONGEST_TEXT) -> str:
    """`text` with its middle left out where it is longer: both ends say what went wrong."""
    if len(text) <= longest:
        return text
    note = f"\n[... {len(text) - longest:,} characters left out ...]\n"
    half = (longest - len(note)) // 2
    return f"{text[:half]}{note}{text[-half:]}"


def type_name(error: BaseException) -> str:
    # Not what a metaclass of the user's says.
    return shortened(type.__dict__["__qualname__"].__get__(type(error)), _LONGEST_NAME)


def message_of(error: BaseException) -> str:
    """`str(error)`, shortened."""
    return shortened(_made(lambda: str(error), "__str__", is_ours=_is_plain(error)))


def named(error: BaseException) -> str:
    """`ValueError: what it says`."""
    return f"{type_name(error)}: {message_of(error)}"


def excerpt(value: object, longest: int = 80) -> str:
    """The beginning of `repr(value)`."""
    return _made(lambda: repr(value)[:longest], "__repr__", is_ours=type(value) in _PLAIN)


def traceback_of(error: BaseException, begin: TracebackType | None) -> str:
    """The traceback from `begin` on, with the errors that led to it, shortened."""
    failed: list[str] = []

    def whole() -> str:
        lines = traceback.format_exception(type(error), error.with_traceback(begin), begin)
        return "".join(lines)

    text = _made(whole, "", is_ours=_is_plain(error), failed=failed)
    if failed:
        # A chain of errors that is too deep, an attribute that raises, a `__str__` that does not
        # end: its own frames remain.
        why = f"(the rest cannot be shown: {failed[0]})\n"
        what = type_name(error) if failed[0] == _endless() else named(error)
        text = "".join([*traceback.format_tb(begin), why, f"{what}\n"])
    return shortened(text)


def _endless() -> str:
    return f"did not end within {PATIENCE_S:g} s"


def _is_plain(error: BaseException) -> bool:
    """Whether no code of the user's makes the text of the error, or of those that led to it."""
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


def _made(
    make: Callable[[], str], how: str, *, is_ours: bool, failed: list[str] | None = None
) -> str:
    """What `make` returns; else why there is nothing, which `failed` takes too.

    What may run code of the user's does so in a thread that nobody waits for in the end: no
    signal would interrupt a lock that is never released.
    """
    made: list[str] = []
    faults: list[str] = []

    def attempt() -> None:
        try:
            made.append(make())
        except BaseException as broken:  # a broken __str__ must not hide the error
            faults.append(f"raised {type_name(broken)}")

    if is_ours:
        attempt()
    else:
        thread = threading.Thread(target=attempt, name="holdfast-safe-text", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # user code has used up all threads, or the interpreter ends
            attempt()
        else:
            thread.join(PATIENCE_S)
    if made:
        return made[0]
    fault = faults[0] if faults else _endless()
    if failed is not None:
        failed.append(fault)
    return f"(its {how} {fault})"
