"""What may be said on the command line."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from holdfast import __version__
from holdfast.cli.browse_arguments import add_browsing
from holdfast.cli.doctor_arguments import add_doctor, with_command
from holdfast.cli.replay_arguments import add_replay
from holdfast.cli.words import CODES


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Raises SystemExit: 0 after --help and --version, 2 for what cannot be understood."""
    parser = _parser()
    if "_ARGCOMPLETE" in os.environ:  # a shell asks what could follow
        import argcomplete

        argcomplete.autocomplete(parser, always_complete_options="long")
    return parser.parse_args(with_command(list(arguments)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="holdfast", description="Training runs that are not lost.", epilog=CODES
    )
    parser.add_argument("--version", action="version", version=f"holdfast {__version__}")
    rooms = parser.add_subparsers(dest="room", required=True, metavar="COMMAND")
    add_browsing(rooms)
    add_replay(rooms)
    add_doctor(rooms)
    return parser
