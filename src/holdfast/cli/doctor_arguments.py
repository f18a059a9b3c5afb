"""What may be said to the doctor on the command line."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from holdfast.cli.words import CODES, EXPERIMENT

COMMANDS = ("verify", "repair", "sync", "gc", "preflight")
_VERIFY = (
    "Look at everything an experiment has left: journal, snapshots, tuner.pkl, the trials' files, "
    "and every checkpoint by its checksums; in storage elsewhere the published set, and every "
    "checkpoint's manifest and sizes. Nothing is changed, and it may be running."
)
_REPAIR = (
    "Mend the directory that an experiment was run in: put aside what of the journal cannot be "
    "read, take broken checkpoints from storage or drop them from the records, write the trials' "
    "files and a snapshot anew. Says what cannot be repaired. Refused while it runs."
)
_SYNC = (
    "Bring to storage what is not there yet, without running any trial: checkpoints, records, "
    "files. For a run that ended with 'this is not in ...'. Like a restore it takes the "
    "experiment over: a run of it on another machine stops. Without other storage it commits what "
    "was only staged. Refused while it runs on this machine."
)
_GC = (
    "Show what nothing needs: leftovers of processes that died, and checkpoints that no record "
    "names, here and in storage. With --yes it is removed; where that is in storage, the "
    "experiment is taken over as a restore does it. What is not holdfast's own is never touched."
)
_PREFLIGHT = (
    "Try a storage_path before a night is spent on it: write, conditional put, large objects in "
    "parts, replace, list, read and delete, each timed; then the lock and the space on this "
    "machine. Leaves nothing behind."
)


_AddParser = Callable[..., argparse.ArgumentParser]


def add_doctor(rooms: Any) -> None:
    """The commands of the doctor, below the subparsers `rooms`."""
    doctor = rooms.add_parser(
        "doctor",
        help="look after an experiment, or a storage",
        description="Look after what experiments have left. 'holdfast doctor PATH' verifies.",
        epilog=CODES,
    )
    commands = doctor.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_verify(commands.add_parser)
    _add_repair(commands.add_parser)
    _add_sync(commands.add_parser)
    _add_gc(commands.add_parser)
    _add_preflight(commands.add_parser)


def with_command(arguments: list[str]) -> list[str]:
    """The arguments with the command that `holdfast doctor PATH` leaves out."""
    if not arguments or arguments[0] != "doctor":
        return arguments
    words = arguments[1:]
    is_help = not words or {"-h", "--help"} & set(words)
    if is_help or any(word in COMMANDS for word in words):
        return arguments
    return ["doctor", "verify", *words]


def _add(add: _AddParser, name: str, told: str) -> argparse.ArgumentParser:
    short = told.partition(": ")[0].rstrip(".")
    command = add(name, help=short[0].lower() + short[1:], description=told, epilog=CODES)
    command.add_argument("--json", action="store_true", help="one JSON object, for scripts")
    return command


def _add_place(command: argparse.ArgumentParser) -> None:
    command.add_argument("path", metavar="PATH", help=EXPERIMENT)
    command.add_argument(
        "--storage",
        metavar="URI",
        help="the experiment's URI in storage, where PATH is the local directory of a run that "
        "was persisted elsewhere",
    )


def _add_depth(command: argparse.ArgumentParser) -> None:
    depth = command.add_mutually_exclusive_group()
    depth.add_argument(
        "--quick", action="store_true", help="only names and sizes of checkpoints, no checksums"
    )
    depth.add_argument(
        "--deep", action="store_true", help="also download every checkpoint that is in storage"
    )


def _add_verify(add: _AddParser) -> None:
    command = _add(add, "verify", _VERIFY)
    _add_place(command)
    _add_depth(command)


def _add_repair(add: _AddParser) -> None:
    command = _add(add, "repair", _REPAIR)
    _add_place(command)
    _add_depth(command)


def _add_sync(add: _AddParser) -> None:
    command = _add(add, "sync", _SYNC)
    _add_place(command)
    command.add_argument(
        "--deep",
        action="store_true",
        help="also download every checkpoint in storage, and upload again what changed there",
    )
    command.add_argument(
        "--timeout",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="how long each upload is tried again (default 300)",
    )


def _add_gc(add: _AddParser) -> None:
    command = _add(add, "gc", _GC)
    _add_place(command)
    command.add_argument("--yes", action="store_true", help="remove it")


def _add_preflight(add: _AddParser) -> None:
    command = _add(add, "preflight", _PREFLIGHT)
    command.add_argument(
        "path", metavar="URI", help="the storage_path of RunConfig: a directory, or a URI"
    )
    command.add_argument(
        "--mib",
        type=int,
        default=24,
        metavar="N",
        help="size of the large object (default 24; from 16 on S3 takes it in parts)",
    )
