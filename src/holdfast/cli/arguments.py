"""The arguments of the command line."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any

from holdfast import __version__
from holdfast.cli.browse_arguments import add_browsing
from holdfast.cli.completing import complete_experiment
from holdfast.cli.doctor_arguments import add_doctor, with_command
from holdfast.cli.words import CODES, EXPERIMENT, number

_REPLAY = (
    "Show what a run would have cost under another scheduler or on other workers: simulate its "
    "configs with their recorded curves, in virtual time. Changes nothing, and loads none of your "
    "code."
)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Raises SystemExit: 0 after --help and --version, 2 for invalid arguments."""
    parser = _parser()
    if "_ARGCOMPLETE" in os.environ:  # a shell asks for completions
        import argcomplete

        argcomplete.autocomplete(parser, always_complete_options="long")
    return parser.parse_args(with_command(list(arguments)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="holdfast",
        description="List, show, resume and repair experiments of holdfast.",
        epilog=CODES,
    )
    parser.add_argument("--version", action="version", version=f"holdfast {__version__}")
    rooms = parser.add_subparsers(dest="room", required=True, metavar="COMMAND")
    add_browsing(rooms)
    add_replay(rooms)
    add_doctor(rooms)
    return parser


def add_replay(rooms: Any) -> None:
    """replay, below the subparsers `rooms`."""
    command: argparse.ArgumentParser = rooms.add_parser(
        "replay",
        help="show what a run would have cost under another scheduler or on other workers",
        description=_REPLAY,
        epilog=CODES,
    )
    path = command.add_argument("path", metavar="EXPERIMENT", help=EXPERIMENT)
    path.completer = complete_experiment  # type: ignore[attr-defined]
    command.add_argument("--json", action="store_true", help="one JSON object, for scripts")
    command.add_argument(
        "--scheduler",
        metavar="NAME",
        default="fifo",
        help="asha, hyperband, ... as for tune.create_scheduler() (default: fifo)",
    )
    command.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an argument of the scheduler, such as max_t=81; VALUE is JSON or text; repeatable",
    )
    command.add_argument(
        "--workers", type=number, metavar="N", help="trials at once (default: as in the run)"
    )
    command.add_argument("--metric", help="default: the experiment's; a/b for a nested metric")
    command.add_argument("--mode", choices=("max", "min"), help="default: the experiment's")
    command.add_argument("--seed", type=int, default=0, metavar="S", help="seed of the scheduler")
