"""Performs `holdfast ray`."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from holdfast.cli.printing import MISUSED, SOUND, WRONG, say_json
from holdfast.compat import ray_path
from holdfast.experiment.folder.settings import Settings
from holdfast.ray_names.checking import Finding, check
from holdfast.ray_names.names import State
from holdfast.trial.errors import InvalidConfig


def run_script(words: Sequence[str]) -> NoReturn:
    """Become `python WORDS`: a script, or `-m` and a module, with its arguments.

    Because this process becomes that one, everything is as without holdfast: `__main__`,
    tracebacks, signals, the exit code, and the names in pickles. Raises InvalidConfig, OSError.
    """
    if sys.flags.ignore_environment:
        raise InvalidConfig(
            "holdfast ray passes the meaning of `import ray` on in PYTHONPATH, which this Python "
            "ignores (-E or -I): start it without them, or make `import holdfast.ray` the first "
            "line of the script"
        )
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    os.execve(sys.executable, [sys.executable, *flags, *words], ray_path.added_to(os.environ))


_WIDTH = 100  # in a pipe
_LEAST = 40
_TITLES = {"same": "The same", "differs": "Different", "missing": "Missing"}


def perform(given: argparse.Namespace, settings: Settings) -> int:
    """Returns the exit code, unless this process becomes the script. Raises InvalidConfig."""
    if given.check is not None:
        files = [*given.check, *given.words]
        if not files:
            raise InvalidConfig("holdfast ray --check needs a script: holdfast ray --check FILE")
        return max([_check(Path(file), as_json=given.json) for file in files])
    words = given.words if given.module is None else ["-m", *given.module]
    if not words or words == ["-m"]:
        raise InvalidConfig("holdfast ray needs a script: holdfast ray script.py ARGUMENTS")
    run_script(words)


def _check(file: Path, *, as_json: bool) -> int:
    """Print what a script uses. Returns 1 if something that it uses is missing, 2 for a file that
    is no script."""
    try:
        found = check(file.read_bytes(), str(file))
    except (OSError, SyntaxError, ValueError) as error:
        text = f"{file} cannot be read as a script: {error}"
        if as_json:
            say_json({"file": str(file), "error": text})
        else:
            print(text, file=sys.stderr)
        return MISUSED
    if as_json:
        say_json({"file": str(file), **_as_json(found)})
    else:
        _say(file, found)
    return WRONG if any(one.state.kind == "missing" and one.is_used for one in found) else SOUND


def _as_json(found: Sequence[Finding]) -> dict[str, Any]:
    return {
        kind: [
            {
                "name": one.name,
                "lines": list(one.lines),
                "text": one.state.text,
                "link": one.state.link,
                "used": one.is_used,
            }
            for one in found
            if one.state.kind == kind
        ]
        for kind in _TITLES
    }


def _say(file: Path, found: Sequence[Finding]) -> None:
    counts = [(kind, sum(one.state.kind == kind for one in found)) for kind in _TITLES]
    told = ", ".join(f"{count} {_TITLES[kind].lower()}" for kind, count in counts)
    print(f"{file}: {told}" if found else f"{file} uses no names of Ray")
    for kind, title in _TITLES.items():
        if of_kind := [one for one in found if one.state.kind == kind]:
            print(f"\n{title}")
            for state in dict.fromkeys(one.state for one in of_kind):
                _say_state(state, [one for one in of_kind if one.state == state])


def _say_state(state: State, found: Sequence[Finding]) -> None:
    """Print the names that have this state, then what it is."""
    names = ", ".join(f"{one.name} ({_where(one)})" for one in found)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH
    for indent, text in (("  ", names), ("      ", state.text), ("      ", state.link)):
        for line in textwrap.wrap(text, max(width, _LEAST) - len(indent), break_on_hyphens=False):
            print(textwrap.indent(line, indent))


def _where(finding: Finding) -> str:
    lines = f"line{'s' * (len(finding.lines) > 1)} {', '.join(map(str, finding.lines))}"
    return lines if finding.is_used else f"{lines}, only imported"
