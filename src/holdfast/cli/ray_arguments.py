"""The arguments of `holdfast ray`."""

from __future__ import annotations

import argparse
from typing import Any

from holdfast.cli.common_arguments import add_command

_RAY = (
    "Run a script written for Ray: `import ray` means holdfast in it and in its workers. An "
    "installed Ray is not touched. docs/moving-from-ray.md has the steps of a move."
)


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
