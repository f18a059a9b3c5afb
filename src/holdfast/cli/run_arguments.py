"""The arguments of `holdfast run`."""

from __future__ import annotations

from typing import Any

from holdfast.cli.common_arguments import add_command, add_flag

_RUN = (
    "Run a sweep: a command of any language, once for each trial, as a YAML, JSON or TOML file "
    "says. The same command again resumes it, if it was interrupted. docs/sweep.md describes the "
    "file, and how a command reports."
)


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
