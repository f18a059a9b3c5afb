"""Runs the module of each command, and prints its errors."""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial

from holdfast.cli.common_arguments import settle
from holdfast.cli.printing import INTERRUPTED, MISUSED, NO_READER, WRONG, say_failure
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.records.recovery import NothingToRestore
from holdfast.results.reading import ExperimentNotFound
from holdfast.syncer.errors import InvalidLocation
from holdfast.trial.errors import InvalidConfig, TuneError
from holdfast.usable_process import fault_of_start, make_usable


def run(given: argparse.Namespace) -> int:
    """Returns the exit code; errors are printed, not raised."""
    make_usable()
    path = given.path or ""
    tell = partial(say_failure, as_json=given.json, path=path, of_lines=_in_lines(given))
    try:
        code = _perform(given, Settings.read(os.environ))
        sys.stdout.flush()  # notice a reader that has gone here, not at the exit
        return code
    except BrokenPipeError:
        # `holdfast show x | head` has read enough. Python would write the rest at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NO_READER
    except (ExperimentNotFound, NothingToRestore, InvalidLocation, InvalidConfig) as error:
        tell(error)
        return MISUSED
    except (TuneError, OSError, UnicodeEncodeError) as error:
        tell(fault_of_start(error) or error)
        return WRONG
    except KeyboardInterrupt:
        # An interrupted command leaves the files as after a crash: the next command continues.
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


def _in_lines(given: argparse.Namespace) -> bool:
    """Whether it prints one JSON object per line."""
    follows = {"logs": "follow", "show": "watch"}.get(given.command)
    return follows is not None and bool(getattr(given, follows))


def _perform(given: argparse.Namespace, settings: Settings) -> int:
    if given.command == "completion":
        from holdfast.cli.common_arguments import shell_code

        print(shell_code(given.shell))
        return 0
    if given.command == "run":
        from holdfast.cli.sweeping import run_sweep

        return run_sweep(given, settings)
    if given.command == "ray":
        from holdfast.cli import ray_commands

        return ray_commands.perform(given)
    if given.command == "queue":
        from holdfast.cli import queueing

        return queueing.perform(given)
    if given.command == "web":
        from holdfast.cli.serving import serve

        return serve(given)
    if given.command == "resume" and not given.trials:
        from holdfast.cli.resuming import resume

        return resume(given, settings)
    settle(given)
    if given.command == "doctor":
        from holdfast.cli.doctor import commands as doctor_commands

        return doctor_commands.perform(given, settings)
    if given.command == "rm":
        from holdfast.cli.removing import remove

        return remove(given, settings)
    if given.command in ("stop", "pause", "resume", "limit", "add", "note"):
        from holdfast.cli import steering

        return steering.perform(given, settings)
    if given.command == "compare":
        from holdfast.cli.browse.comparing import compare_sides

        return compare_sides(given, settings)
    if given.command == "replay":
        from holdfast.cli.replaying import replay

        return replay(given)
    from holdfast.cli.browse import commands as browse_commands

    return browse_commands.perform(given, settings)
