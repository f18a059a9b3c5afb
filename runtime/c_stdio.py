"""Flushes the output of C code, which has its own buffers: `printf` in a native library."""

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
    """Make C's stdout line-buffered; if it is a file, it is block-buffered by default."""
    if (stdio := _stdio()) is not None:
        stdio.setvbuf(stdio.stdout, None, _IOLBF, 0)


def flush() -> None:
    """Flush C's buffers. Otherwise each forked child would write their contents again."""
    if (stdio := _stdio()) is not None:
        stdio.fflush(None)


@cache
def _stdio() -> _Stdio | None:
    """C's stdout and the functions for it; None if they are not found."""
    import ctypes

    try:
        libc = ctypes.CDLL(None)
        stdout = ctypes.c_void_p.in_dll(libc, _STDOUT[sys.platform])
        libc.setvbuf.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_size_t)
        libc.fflush.argtypes = (ctypes.c_void_p,)
        return _Stdio(stdout, libc.setvbuf, libc.fflush)
    except (KeyError, OSError, AttributeError, ValueError):
        return None
