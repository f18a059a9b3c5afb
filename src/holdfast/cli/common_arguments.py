"""Arguments of several commands, with their types, help texts and completions; and names.

Completions read only the names of folders: the shell has them within a tenth of a second.
"""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Iterator
from typing import Any

_TRIAL = re.compile(r"_([0-9a-f]{5}_\d{5,})_")


def print_shell_code(given: argparse.Namespace, settings: object) -> int:
    """Print the script that makes a shell call this command for completions."""
    from argcomplete.shell_integration import shellcode

    print(shellcode(["holdfast"], shell=given.shell))
    return 0


def complete_place(prefix: str, **_: object) -> Iterator[str]:
    """Folders."""
    return _folders(prefix, only_experiments=False)


def complete_experiment(
    prefix: str, parsed_args: argparse.Namespace, **_: object
) -> Iterator[str]:
    """Experiments, and folders that may contain some; and the names that `ls` has printed, or
    would print."""
    yield from _folders(prefix, only_experiments=not prefix)
    if "/" not in prefix:
        root = getattr(parsed_args, "root", None)
        yield from (name for name in _known_names(root) if name.startswith(prefix))


def _known_names(root: str | None) -> Iterator[str]:
    """The names in the places where names are looked for."""
    from holdfast.experiment.folder.shell import read_listed

    for place in _places(root):
        found = _folders(f"{place}/", only_experiments=True)
        yield from (path.removeprefix(f"{place}/") for path in found)
    for listed in read_listed(os.environ) if root is None else ():
        if "://" in listed.place:
            yield from listed.names


def _places(root: str | None) -> list[str]:
    """The folders of this machine in which names are looked for."""
    from holdfast.experiment.folder.shell import read_listed

    environ = os.environ
    only = root or environ.get("HOLDFAST_ROOT")
    usual = environ.get("RAY_STORAGE") or environ.get("RAY_AIR_LOCAL_CACHE_DIR")
    several = [usual or "~/ray_results", *(listed.place for listed in read_listed(environ))]
    places = [only] if only else several
    found = (os.path.expanduser(place).rstrip("/") for place in places if "://" not in place)
    return list(dict.fromkeys(found))


def complete_trial(prefix: str, parsed_args: argparse.Namespace, **_: object) -> Iterator[str]:
    """The trial ids of the experiment that is named before; the folder of a trial whose folder the
    user's code has named."""
    named = getattr(parsed_args, "path", "") or ""
    place = os.path.expanduser(named)
    if "/" not in named and not os.path.isdir(f"{named}/journal"):
        found = (f"{one}/{named}" for one in _places(getattr(parsed_args, "root", None)))
        place = next(filter(os.path.isdir, found), place)
    for name in _names(place):
        known = _TRIAL.search(name)
        trial = known[1] if known else name
        is_trial = known or os.path.exists(f"{place}/{name}/params.json")
        if is_trial and trial.startswith(prefix):
            yield trial


def _folders(prefix: str, *, only_experiments: bool) -> Iterator[str]:
    above, _, begun = os.path.expanduser(prefix).rpartition("/")
    place = f"{above}/" if "/" in prefix else ""
    for name in _names(place or "."):
        folder = f"{place}{name}"
        if not name.startswith(begun) or name.startswith(".") or not os.path.isdir(folder):
            continue
        if os.path.isdir(f"{folder}/journal"):
            yield folder
        elif not only_experiments:
            yield f"{folder}/"


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []  # no such folder: no completions


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


def add_group(commands: Any, name: str, short: str, description: str) -> Any:
    """A command that has commands of its own; returns its subparsers."""
    group = commands.add_parser(name, help=short, description=description, epilog=CODES)
    return group.add_subparsers(dest=f"{name}_command", required=True, metavar="COMMAND")


def add_flag(command: Any, names: str, text: str, **given: Any) -> None:
    """An option without a value, of a command or a group, with its help text."""
    command.add_argument(*names.split(), action="store_true", help=text, **given)


def add_value(command: Any, names: str, text: str, *, completer: Any = None, **given: Any) -> None:
    """An argument, or an option with a value, of a command or a group, with its help text. The
    last of the `names` is the metavar, as in `-n --rows N`; `given` is for argparse."""
    *known, metavar = names.split()
    made = command.add_argument(*known, metavar=metavar, help=text, **given)
    made.completer = completer


def add_several(command: Any, names: str, text: str, **given: Any) -> None:
    """An option that may be repeated: its values are a list."""
    add_value(command, names, text, action="append", default=[], **given)


def add_experiment(command: Any, name: str = "path", text: str = "", **given: Any) -> None:
    """The experiment's name, directory or URI, and the place in which names are looked for."""
    text = text or EXPERIMENT
    add_value(command, f"{name} EXPERIMENT", text, completer=complete_experiment, **given)
    add_root(command)


def add_trial(command: Any, name: str = "trial", text: str = TRIAL, **given: Any) -> None:
    """A trial, or several."""
    add_value(command, f"{name} TRIAL", text, completer=complete_trial, **given)


def add_root(command: Any) -> None:
    """--root."""
    add_value(command, "--root PLACE", ROOT, completer=complete_place)


def add_goal(command: Any, more: str = "") -> None:
    """--metric and --mode."""
    text = f"default: the experiment's; a/b for a nested metric{more}"
    add_value(command, "--metric METRIC", text)
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


def time_limit(text: str) -> float:
    """Seconds, of text such as `7200`, `2h` or `inf`. Raises ArgumentTypeError."""
    from holdfast.trial.config import seconds_of
    from holdfast.trial.errors import InvalidConfig

    if not math.isnan(value := _number(text)):
        return value
    try:
        return seconds_of(text, "it")
    except InvalidConfig as error:
        raise argparse.ArgumentTypeError(str(error)) from None


# -- the names of experiments ---------------------------------------------------------------------


def settle(given: argparse.Namespace) -> None:
    """Replace the name of an experiment by its path. Raises ExperimentNotFound, InvalidConfig,
    InvalidLocation, StorageError."""
    if not hasattr(given, "root"):
        return
    if given.path is not None:
        given.path = named_path(given.path, given)
    if hasattr(given, "paths"):
        given.paths = [named_path(path, given) for path in given.paths]


def named_path(text: str, given: argparse.Namespace) -> str:
    """The path of an experiment that may be named. Raises as `settle`."""
    from holdfast.results.catalog import path_of

    return path_of(text, given.root, os.environ)
