"""What C code prints in this process through its own buffers: `printf` of a native library."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

_IOLBF = 1  # in glibc, musl and macOS
_STDOUT = {"linux": "stdout", "darwin": "__stdoutp"}


class _Stdio(NamedTuple):
    stdout: Any
    setvbuf: Callable[..., int]
    fflush: Callable[..., int]


def write_each_line() -> None:
    """Let C code's stdout, which is buffered by blocks where it is a file, write each line."""
    if (stdio := _stdio()) is not None:
        stdio.setvbuf(stdio.stdout, None, _IOLBF, 0)


def flush() -> None:
    """Write what C code has printed. What stays in the buffers is written again by each fork."""
    if (stdio := _stdio()) is not None:
        stdio.fflush(None)


@cache
def _stdio() -> _Stdio | None:
    """None where C's stdout is not found."""
    import ctypes

    try:
        libc = ctypes.CDLL(None)
        stdout = ctypes.c_void_p.in_dll(libc, _STDOUT[sys.platform])
        libc.setvbuf.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_size_t)
        libc.fflush.argtypes = (ctypes.c_void_p,)
        return _Stdio(stdout, libc.setvbuf, libc.fflush)
    except (KeyError, OSError, AttributeError, ValueError):
        return None
