"""The arguments of `holdfast queue`."""

from __future__ import annotations

import argparse
from typing import Any

from holdfast.cli.common_arguments import CODES, add_command, add_flag, number

_QUEUE = (
    "Run commands one after another or side by side, from plain files: no daemon, and a killed "
    "run or a reboot loses nothing. 'queue run' starts what is due."
)
_ADD = (
    "Add a command. A script.py runs with this Python, a sweep.yaml with 'holdfast run'. It runs "
    "in the current directory, with the environment of 'queue run'."
)
_LS = "List the jobs: state, exit code, command, and the experiment that a job has begun."
_RUN = (
    "Run the jobs that are due, until none is left. Their trials share this machine. Ctrl-C "
    "interrupts them, and the next 'queue run' continues; a second Ctrl-C kills them."
)
_RM = "Remove jobs, with their output. Experiments stay. Refuses a job that runs."
_STOP = "Stop jobs: interrupt those that run, and hold back those that wait, until a retry."
_RETRY = (
    "Make jobs due again that have failed, were stopped, or are done. Experiments that a job has "
    "begun continue, and finished ones are not repeated, except with --anew."
)
_LOGS = "Print the output of a job."


def add_queue(commands: Any) -> None:
    """The commands of the queue, below the subparsers `commands`."""
    queue = commands.add_parser(
        "queue",
        help="run several scripts one after another or side by side",
        description=_QUEUE,
        epilog=CODES,
    )
    several = queue.add_subparsers(dest="queue_command", required=True, metavar="COMMAND")
    _add_add(several)
    _add(several, "ls", _LS)
    run = _add(several, "run", _RUN)
    run.add_argument(
        "-j",
        "--jobs",
        type=_at_least_one,
        default=1,
        metavar="N",
        help="jobs at once (default: 1)",
    )
    add_flag(run, "--forever", "wait for more jobs when none is left")
    for name, text in (("rm", _RM), ("stop", _STOP), ("retry", _RETRY)):
        command = _add(several, name, text)
        command.add_argument("ids", metavar="ID", nargs="+", type=number, help="a job's number")
        if name == "retry":
            add_flag(command, "--anew", "begin new experiments; those that it has begun stay")
    logs = _add(several, "logs", _LOGS)
    logs.add_argument("id", metavar="ID", type=number, help="a job's number")
    add_flag(logs, "--stderr", "stderr instead of stdout")
    logs.add_argument("-n", "--tail", type=number, metavar="N", help="only the last N lines")


def with_list(arguments: list[str]) -> list[str]:
    """The arguments with the command that a bare `holdfast queue` leaves out."""
    if arguments[:1] != ["queue"] or arguments[1:2] not in ([], ["--json"], ["--queue"]):
        return arguments
    return ["queue", "ls", *arguments[1:]]


def _add(several: Any, name: str, text: str) -> argparse.ArgumentParser:
    command = add_command(several, name, text)
    command.add_argument(
        "--queue",
        metavar="DIR",
        help="the queue's folder (default: HOLDFAST_QUEUE, or ~/.local/share/holdfast/queue)",
    )
    command.set_defaults(path=None)
    return command


def _add_add(several: Any) -> None:
    command = _add(several, "add", _ADD)
    command.add_argument("--name", help="default: the script's name")
    command.add_argument("--dir", metavar="DIR", help="default: the current directory")
    command.add_argument(
        "--cpus",
        type=_at_least_one,
        metavar="N",
        help="CPUs that the job waits for and holds as a whole; without this and --gpus its "
        "trials share the machine, each with what it asks for",
    )
    command.add_argument("--gpus", type=number, metavar="N", help="the same for GPUs")
    command.add_argument(
        "words",
        metavar="COMMAND",
        nargs=argparse.REMAINDER,
        help="the command and its arguments; after -- if it begins with a dash",
    )


def _at_least_one(text: str) -> int:
    found = number(text)
    if not found:
        raise argparse.ArgumentTypeError("it must be at least 1")
    return found
