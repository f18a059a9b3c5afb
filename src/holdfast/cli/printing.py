"""Output for people, with colour in a terminal; and the exit codes of all commands."""

from __future__ import annotations

import json
import sys
from typing import Any

from holdfast.names import printable
from holdfast.syncer.errors import redact
from holdfast.trial.readable import finite

SOUND, WRONG, MISUSED, INTERRUPTED, NO_READER = 0, 1, 2, 130, 141


def say(text: str, style: str = "") -> None:
    """One line to stdout; `style` is one of rich's, for a terminal."""
    text = printable(text)
    if not style or not sys.stdout.isatty():
        print(text)
        return
    from rich.console import Console

    Console(highlight=False, soft_wrap=True).print(text, style=style, markup=False)


def say_json(plain: Any) -> None:
    """One JSON object. NaN and infinite numbers are null."""
    print(json_text(finite(plain)))


def json_text(plain: Any, *, in_a_line: bool = False) -> str:
    """ASCII: JSON escapes control characters, except for one, which is escaped here."""
    return json.dumps(plain, indent=None if in_a_line else 1).replace("\x7f", "\\u007f")


def complain(text: str) -> None:
    """To stderr, without credentials."""
    shown = printable(redact(text), keep="\n")
    print(f"holdfast: {shown}", file=sys.stderr, flush=True)


def say_failure(error: BaseException, *, as_json: bool, path: str, of_lines: bool = False) -> None:
    """Print the error that stopped the command; `of_lines`: JSON on one line."""
    if as_json:
        failure = {
            "path": redact(path),
            "sound": False,
            "error": redact(str(error)),
            "error_type": type(error).__name__,
        }
        print(json_text(failure, in_a_line=of_lines))
    else:
        complain(str(error))


def quoted(text: str) -> str:
    """Quoted for a shell, without credentials."""
    import shlex

    return shlex.quote(redact(text))
