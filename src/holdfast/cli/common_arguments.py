"""The arguments that several commands have, their types, and their help texts."""

from __future__ import annotations

import argparse
import math
from typing import Any

from holdfast.cli.completing import complete_experiment, complete_place

EXPERIMENT = (
    "the experiment's name as ls prints it, its directory <storage_path>/<name>, or its URI as in "
    "s3://bucket/results/digits?endpoint_override=http://127.0.0.1:9000; credentials as for fit()"
)
ROOT = (
    "the directory or URI in which names are looked for (default: HOLDFAST_ROOT; else where fit() "
    "keeps results, and what ls listed last)"
)
TRIAL = "a trial's id, the beginning or end of one, or its number: 0, 1, ..."
_BOOLS = {"true": True, "false": False}
CODES = "exit codes: 0 sound, or done; 1 something is wrong; 2 not understood, or not found"


def add_command(
    commands: Any, name: str, description: str, *, json_help: str = "one JSON object, for scripts"
) -> argparse.ArgumentParser:
    """A command below the subparsers `commands`. Its help is the beginning of its description."""
    short = description.partition(": ")[0].partition(". ")[0].rstrip(".")
    command: argparse.ArgumentParser = commands.add_parser(
        name, help=short[0].lower() + short[1:], description=description, epilog=CODES
    )
    add_flag(command, "--json", json_help)
    return command


def add_flag(command: Any, names: str, text: str) -> None:
    """An option without a value, of a command or a group, with its help text."""
    command.add_argument(*names.split(), action="store_true", help=text)


def add_experiment(command: argparse.ArgumentParser, nargs: str | None = None) -> None:
    """The experiment's name, directory or URI."""
    path = command.add_argument("path", metavar="EXPERIMENT", help=EXPERIMENT, nargs=nargs)
    path.completer = complete_experiment  # type: ignore[attr-defined]
    add_root(command)


def add_experiments(command: argparse.ArgumentParser, help_text: str) -> None:
    """One or more experiments."""
    paths = command.add_argument("paths", metavar="EXPERIMENT", nargs="+", help=help_text)
    paths.completer = complete_experiment  # type: ignore[attr-defined]
    add_root(command)
    command.set_defaults(path=None)


def add_root(command: argparse.ArgumentParser) -> None:
    """--root."""
    root = command.add_argument("--root", metavar="PLACE", help=ROOT)
    root.completer = complete_place  # type: ignore[attr-defined]


def add_goal(command: argparse.ArgumentParser, more: str = "") -> None:
    """--metric and --mode."""
    command.add_argument(
        "--metric", help=f"default: the experiment's; a/b for a nested metric{more}"
    )
    command.add_argument("--mode", choices=("max", "min"), help="default: the experiment's")


def number(text: str) -> int:
    """A whole number of at least 0. Raises ArgumentTypeError."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


def port(text: str) -> int:
    """The number of a port, 0 for any. Raises ArgumentTypeError."""
    if not (text.isascii() and text.isdigit() and int(text) < 1 << 16):
        raise argparse.ArgumentTypeError(f"{text!r:.40} is not a port from 0 to 65535")
    return int(text)


def bound(text: str) -> tuple[str, float]:
    """A metric and its bound from KEY=VALUE. Raises ArgumentTypeError."""
    name, _, said = text.rpartition("=")
    try:
        limit: float = _BOOLS[said] if said in _BOOLS else int(said)
    except ValueError:
        limit = _number(said)
    if not name or math.isnan(limit):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not KEY=VALUE, as in training_iteration=90 or accuracy=0.95; a value "
            f"is a number, true or false"
        )
    return name, limit


def tag(text: str) -> tuple[str, str]:
    """The name and the value of a tag from NAME=VALUE. Raises ArgumentTypeError."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE, as in data=v3")
    return name, value


def _number(text: str) -> float:
    """The text as a number, else NaN."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def seconds(text: str) -> float:
    """A finite number of seconds above 0. Raises ArgumentTypeError."""
    value = _number(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value
