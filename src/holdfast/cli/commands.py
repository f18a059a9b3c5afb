"""Runs the module of each command, and prints its errors."""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from importlib import import_module

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
    """True if it prints one JSON object per line."""
    follows = {"logs": "follow", "show": "watch"}.get(given.command)
    return follows is not None and bool(getattr(given, follows))


# The function that performs each command, in a module of `holdfast.cli`: imported when it is used.
_LIST = "browse.commands:perform"
_STEER = "steering:perform"
_COMMANDS = {
    **dict.fromkeys(("stop", "pause", "limit", "add", "note"), _STEER),
    "compare": "browse.comparing:compare_sides",
    "completion": "common_arguments:print_shell_code",
    "doctor": "doctoring:perform",
    "queue": "queueing:perform",
    "ray": "ray_commands:perform",
    "replay": "replaying:replay",
    "resume": "resuming:resume",
    "rm": "removing:remove",
    "run": "sweeping:run_sweep",
    "web": "serving:serve",
}
# These name no experiment, or know names of their own.
_WITHOUT_NAMES = ("completion", "queue", "ray", "resume", "run", "web")


def _perform(given: argparse.Namespace, settings: Settings) -> int:
    steers = given.command == "resume" and given.trials
    if steers or given.command not in _WITHOUT_NAMES:
        settle(given)
    home = _STEER if steers else _COMMANDS.get(given.command, _LIST)
    module, _, name = home.partition(":")
    code: int = getattr(import_module(f"holdfast.cli.{module}"), name)(given, settings)
    return code
