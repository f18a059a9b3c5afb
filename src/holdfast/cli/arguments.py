"""The arguments of the command line."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from holdfast import __version__
from holdfast.cli.browse.arguments import add_browsing
from holdfast.cli.common_arguments import CODES
from holdfast.cli.doctor.arguments import add_doctor, with_command
from holdfast.cli.parser import Parser
from holdfast.cli.queue.arguments import add_queue, with_list
from holdfast.cli.ray_arguments import add_ray
from holdfast.cli.run_arguments import add_run
from holdfast.cli.steering.arguments import add_steering


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
