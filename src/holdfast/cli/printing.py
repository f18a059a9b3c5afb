"""Output for people, with colour in a terminal; and the exit codes of all commands."""

from __future__ import annotations

import argparse
import errno
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from holdfast.errors import TuneError
from holdfast.names import printable
from holdfast.syncer.errors import redact
from holdfast.trial.values import finite

_ADVICE = {
    errno.EROFS: ". That disk cannot be written: use another path, or a copy elsewhere",
    errno.EACCES: ". Check its permissions, and as which user you are here",
    errno.EPERM: ". Check its permissions, and as which user you are here",
    errno.ENOSPC: ". Free some space and try again",
}
SOUND, WRONG, MISUSED, INTERRUPTED, NO_READER = 0, 1, 2, 130, 141


_collecting: list[list[tuple[str, str]]] = []


@contextmanager
def collected() -> Iterator[list[tuple[str, str]]]:
    """The lines of `say` in this block with their styles, instead of printing them."""
    lines: list[tuple[str, str]] = []
    _collecting.append(lines)
    try:
        yield lines
    finally:
        _collecting.pop()


def say(text: str, style: str = "") -> None:
    """One line to stdout; `style` is one of rich's, for a terminal."""
    text = printable(text)
    if _collecting:
        _collecting[-1].append((text, style))
        return
    if not style or not sys.stdout.isatty():
        print(text)
        return
    from rich.console import Console

    Console(highlight=False, soft_wrap=True).print(text, style=style, markup=False)


def say_json(plain: Any) -> None:
    """One JSON object. NaN and infinite numbers are null."""
    print(json_text(finite(plain)))


def answer(given: argparse.Namespace, plain: Mapping[str, Any], *lines: str) -> int:
    """Print what a command has done: with --json the object, else the lines. Returns its code."""
    if given.json:
        say_json(plain)
    else:
        for line in lines:
            say(line)
    return SOUND


def json_text(plain: Any, *, in_a_line: bool = False) -> str:
    """ASCII: JSON escapes control characters, except for one, which is escaped here."""
    return json.dumps(plain, indent=None if in_a_line else 1).replace("\x7f", "\\u007f")


def ask(given: argparse.Namespace, question: str, refused: str) -> int:
    """Ask before something is done for good, except with --yes. Returns SOUND if the user agrees,
    else the exit code; `refused` says what is not done."""
    if given.yes:
        return SOUND
    if given.json or not sys.stdin.isatty():
        complain(f"{refused}: without a terminal to ask, pass --yes")
        return MISUSED
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return SOUND
    complain(refused)
    return WRONG


def show_progress(what: str, done: int, total: int) -> None:
    """`3 of 8 checkpoints`, replaced by the next one; only in a terminal."""
    if sys.stderr.isatty():
        end = "\n" if done == total else ""
        print(f"\r{done} of {total} {what}", end=end, file=sys.stderr, flush=True)


def complain(text: str) -> None:
    """To stderr, without credentials."""
    shown = printable(redact(text), keep="\n")
    print(f"holdfast: {shown}", file=sys.stderr, flush=True)


def say_failure(error: BaseException, *, as_json: bool, path: str, of_lines: bool = False) -> None:
    """Print the error that stopped the command; `of_lines`: JSON on one line."""
    text = _in_words(error)
    if as_json:
        failure = {
            "path": redact(path),
            "sound": False,
            "error": redact(text),
            "error_type": type(error).__name__,
        }
        print(json_text(failure, in_a_line=of_lines))
    else:
        complain(text)


def _in_words(error: BaseException) -> str:
    """The message; of an error of the operating system a sentence, with what to do."""
    if not isinstance(error, OSError) or isinstance(error, TuneError) or not error.filename:
        return str(error)
    advice = _ADVICE.get(error.errno or 0, "")
    return f"cannot use {error.filename}: {error.strerror}{advice}"


def quoted(text: str) -> str:
    """Quoted for a shell, without credentials."""
    import shlex

    return shlex.quote(redact(text))
