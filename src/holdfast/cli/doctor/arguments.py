"""The arguments of `holdfast doctor`."""

from __future__ import annotations

import argparse
from typing import Any

from holdfast.cli.common_arguments import CODES, add_command, add_experiment, add_flag

COMMANDS = ("verify", "repair", "sync", "gc", "preflight", "report")
_VERIFY = (
    "Check all files of an experiment: journal, snapshots, tuner.pkl, the trials' files, and "
    "every checkpoint by its checksums; in remote storage the published set, and every "
    "checkpoint's manifest and sizes. Changes nothing, and works on a running experiment."
)
_REPAIR = (
    "Repair an experiment's directory: put unreadable parts of the journal aside, download broken "
    "checkpoints from storage or drop them from the records, rewrite the trials' files and a "
    "snapshot. Reports what it cannot repair. Refuses a running experiment."
)
_SYNC = (
    "Upload what is not in storage yet, without running a trial: checkpoints, records, files. For "
    "a run that ended with 'this is not in ...'. Like a restore it takes the experiment over: a "
    "run of it on another machine stops. Without remote storage it commits staged checkpoints. "
    "Refuses an experiment that runs on this machine."
)
_GC = (
    "Show files that nothing needs: leftovers of processes that died, and checkpoints that no "
    "record names, here and in storage. --yes removes them. If it removes any in storage, it "
    "takes the experiment over, as a restore does. It never touches other files."
)
_PREFLIGHT = (
    "Test a storage_path before a long run: write, conditional put, large objects in parts, "
    "replace, list, read and delete, each timed; then the lock and the free space on this "
    "machine. Leaves nothing behind."
)
_REPORT = (
    "Print what a report of a bug needs, as JSON: versions, the names of variables, and of an "
    "experiment the states, the kinds of records, failures and what verify finds. It has no "
    "config, metric, output or value of a variable, but messages and tracebacks: read it first."
)


def add_doctor(commands: Any) -> None:
    """The commands of the doctor, below the subparsers `commands`."""
    doctor = commands.add_parser(
        "doctor",
        help="verify or repair an experiment, or test a storage",
        description="Verify and repair experiments. 'holdfast doctor PATH' verifies.",
        epilog=CODES,
    )
    doctor_commands = doctor.add_subparsers(
        dest="doctor_command", required=True, metavar="COMMAND"
    )
    for name, description in (("verify", _VERIFY), ("repair", _REPAIR)):
        command = add_command(doctor_commands, name, description)
        _add_place(command)
        _add_depth(command)
    _add_sync(doctor_commands)
    _add_gc(doctor_commands)
    _add_preflight(doctor_commands)
    report = add_command(doctor_commands, "report", _REPORT)
    add_experiment(report, nargs="?")


def with_command(arguments: list[str]) -> list[str]:
    """The arguments with the command that `holdfast doctor PATH` leaves out."""
    if not arguments or arguments[0] != "doctor":
        return arguments
    words = arguments[1:]
    is_help = not words or {"-h", "--help"} & set(words)
    if is_help or any(word in COMMANDS for word in words):
        return arguments
    return ["doctor", "verify", *words]


def _add_place(command: argparse.ArgumentParser) -> None:
    add_experiment(command)
    command.add_argument(
        "--storage",
        metavar="URI",
        help="the experiment's URI, if PATH is the local tree of an experiment with storage "
        "elsewhere",
    )


def _add_depth(command: argparse.ArgumentParser) -> None:
    depth = command.add_mutually_exclusive_group()
    add_flag(depth, "--quick", "check only names and sizes of checkpoints, no checksums")
    add_flag(depth, "--deep", "also download every checkpoint from storage")


def _add_sync(commands: Any) -> None:
    command = add_command(commands, "sync", _SYNC)
    _add_place(command)
    add_flag(
        command, "--deep", "also download every checkpoint from storage, and replace changed ones"
    )
    command.add_argument(
        "--timeout",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="how long each upload is retried (default 300)",
    )


def _add_gc(commands: Any) -> None:
    command = add_command(commands, "gc", _GC)
    _add_place(command)
    add_flag(command, "--yes", "remove them")


def _add_preflight(commands: Any) -> None:
    command = add_command(commands, "preflight", _PREFLIGHT)
    command.add_argument(
        "path", metavar="URI", help="the storage_path of RunConfig: a directory, or a URI"
    )
    command.add_argument(
        "--mib",
        type=int,
        default=24,
        metavar="N",
        help="size of the large object (default 24; S3 uses parts from 16)",
    )
