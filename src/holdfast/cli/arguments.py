"""The arguments of the command line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from holdfast import __version__
from holdfast.cli.browse.arguments import add_browsing
from holdfast.cli.common_arguments import CODES, add_command, add_flag
from holdfast.cli.doctor.arguments import add_doctor, with_command
from holdfast.cli.queue.arguments import add_queue, with_list
from holdfast.cli.steering.arguments import add_steering

_RAY = (
    "Run a script written for Ray: `import ray` means holdfast in it and in its workers. An "
    "installed Ray is not touched. docs/moving-from-ray.md has the steps of a move."
)
_RUN = (
    "Run a sweep: a command of any language, once for each trial, as a YAML, JSON or TOML file "
    "says. The same command again resumes it, if it was interrupted. docs/sweep.md describes the "
    "file, and how a command reports."
)
_NEAR = 0.5


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Raises SystemExit: 0 after --help and --version, 2 for invalid arguments."""
    parser = _parser()
    if "_ARGCOMPLETE" in os.environ:  # a shell asks for completions
        import argcomplete

        argcomplete.autocomplete(parser, always_complete_options="long")
    given = list(arguments)
    if "#" in given and given[0] not in ("queue", "ray"):
        given = given[: given.index("#")]  # a pasted comment, which zsh passes on
    if given in ([], ["doctor"]):
        parser.explain(given)
    return parser.read(with_command(with_list(given)))


def _parser() -> Parser:
    parser = Parser(
        prog="holdfast",
        description="Run, list, show, resume and repair experiments of holdfast.",
        epilog=CODES,
    )
    parser.add_argument("--version", action="version", version=f"holdfast {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    add_browsing(commands)
    add_steering(commands)
    add_run(commands)
    add_ray(commands)
    add_doctor(commands)
    add_queue(commands)
    return parser


def add_ray(commands: Any) -> None:
    """`ray`, below the subparsers `commands`."""
    command = add_command(
        commands, "ray", _RAY, json_help="with --check: one JSON object for each script"
    )
    command.add_argument(
        "--check",
        nargs="*",  # those after another option are the words
        metavar="FILE",
        help="run nothing; list what the scripts use of Ray: the same here, different, missing",
    )
    command.add_argument(
        "-m",
        dest="module",
        nargs=argparse.REMAINDER,
        metavar="MODULE",
        help="run a module as a script, with the arguments that follow",
    )
    command.add_argument(
        "words", nargs=argparse.REMAINDER, metavar="SCRIPT", help="the script, and its arguments"
    )
    command.set_defaults(path=None)


def add_run(commands: Any) -> None:
    """`run`, below the subparsers `commands`."""
    command = add_command(
        commands, "run", _RUN, json_help="at the end, one JSON object as from show"
    )
    command.add_argument("path", metavar="FILE", help="the sweep file, such as sweep.yaml")
    command.add_argument(
        "--name", metavar="N", help="the experiment's name (default: the file's, or as it says)"
    )
    command.add_argument(
        "--storage", metavar="URI", help="a directory or URI for the results, as storage_path"
    )
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="another value in the file, such as parameters.lr.max=0.1; VALUE is JSON or text; "
        "repeatable",
    )
    command.add_argument("--samples", type=int, metavar="N", help="num_samples: how many trials")
    how = command.add_mutually_exclusive_group()
    add_flag(how, "--new", "start a new run under the name of one that has ended")
    add_flag(how, "--extend", "resume with other num_samples, stop, time_budget_s or parameters")
    add_flag(command, "--dry-run", "check the file and show some commands, and run nothing")


class Parser(argparse.ArgumentParser):
    """An ArgumentParser of a command, or of a group of commands."""

    commands: Any = None

    def add_subparsers(self, **given: Any) -> Any:
        self.commands = super().add_subparsers(**given)
        return self.commands

    def read(self, arguments: Sequence[str]) -> argparse.Namespace:
        """The arguments as `parse_args` reads them. Raises SystemExit."""
        self._check_command(arguments)
        found, rest = self.parse_known_args(arguments)
        if hasattr(found, "trials") and not any(word.startswith("-") for word in rest):
            # argparse takes no argument of a list after an option: `stop EXPERIMENT --yes TRIAL`.
            found.trials, rest = [*found.trials, *rest], []
        if rest:
            self._innermost(arguments).refuse(rest)
        return found

    def explain(self, arguments: Sequence[str]) -> NoReturn:
        """Print the help of the command that the arguments name, since its own are missing.
        Raises SystemExit."""
        self._innermost(arguments).print_help(sys.stderr)
        raise SystemExit(2)

    def refuse(self, rest: Sequence[str]) -> NoReturn:
        """Raises SystemExit, naming the arguments that this command does not have."""
        options = [name for name in self._option_string_actions if name.startswith("--")]
        given = [word.partition("=")[0] for word in rest if word.startswith("-")]
        near = [found for word in given for found in _near(word, options)]
        meant = f". Did you mean {' '.join(dict.fromkeys(near))}?" if near else ""
        if self.prog.endswith(" show") and len(rest) == 1 and not given:
            self.error(
                f"show takes one experiment. For a trial: holdfast logs EXPERIMENT {rest[0]}"
            )
        self.error(f"unrecognized arguments: {' '.join(rest)}{meant}")

    def _check_command(self, arguments: Sequence[str]) -> None:
        """Raises SystemExit for an unknown command. Options before it are the parser's own."""
        word = arguments[0] if arguments else "-"
        if self.commands is None or word.startswith("-"):
            return
        known = self.commands.choices
        if word not in known:
            near = _near(word, known)
            meant = f"Did you mean {near[0]}?" if near else f"There are {', '.join(known)}"
            self.error(f"there is no command {word!r}. {meant}")
        known[word]._check_command(arguments[1:])

    def _innermost(self, arguments: Sequence[str]) -> Parser:
        """The parser of the command that the arguments begin with."""
        known = {} if self.commands is None else self.commands.choices
        found: Parser | None = known.get(arguments[0]) if arguments else None
        return self if found is None else found._innermost(arguments[1:])


def _near(word: str, known: Iterable[str]) -> list[str]:
    import difflib  # only errors need it

    return difflib.get_close_matches(word, list(known), 1, _NEAR)
