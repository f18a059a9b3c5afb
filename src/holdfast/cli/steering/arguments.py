"""The arguments of the commands that steer a live run."""

from __future__ import annotations

import argparse
from typing import Any

from holdfast.cli.common_arguments import TRIAL, add_command, add_experiment, add_flag, number
from holdfast.cli.completing import complete_trial

_STOP = (
    "Stop trials of a live run for good, or without TRIAL the whole run. A stopped trial keeps "
    "its results and cannot continue. A stopped run ends as after Ctrl-C, and holdfast resume "
    "continues it. The order goes to the process that runs the experiment, which must be on this "
    "machine."
)
_PAUSE = (
    "Pause trials of a live run: they give up their workers at the next report that has a "
    "checkpoint, and wait until holdfast resume EXPERIMENT TRIAL. Trials that have not started "
    "do not start. A pause outlives failures and restores."
)
_LIMIT = (
    "Limit how many trials of a live run run at once: TuneConfig(max_concurrent_trials) from now "
    "on, also after a restore. Running trials continue."
)
_ADD = (
    "Add trials to a live run: more samples of its search, or one trial with a config of your "
    "own, which starts next. What the config leaves out comes from the search space."
)
_NOTE = "Write a note on a trial of a live run. It replaces the trial's note; '' removes it."


def add_steering(commands: Any) -> None:
    """The commands that steer, below the subparsers `commands`; `resume` restores as well, and is
    among those of `browse`."""
    _add_stop(commands)
    _add_pause(commands)
    _add_limit(commands)
    _add_add(commands)
    _add_note(commands)


def add_trials(command: argparse.ArgumentParser, nargs: str, more: str = "") -> None:
    """The trials that an order is for."""
    trials = command.add_argument("trials", metavar="TRIAL", nargs=nargs, help=f"{TRIAL}{more}")
    trials.completer = complete_trial  # type: ignore[attr-defined]


def _add_stop(commands: Any) -> None:
    command = add_command(commands, "stop", _STOP)
    add_experiment(command)
    add_trials(command, "*", "; without one, the run stops, to be resumed later")
    add_flag(command, "-y --yes", "do not ask before trials end for good")


def _add_pause(commands: Any) -> None:
    command = add_command(commands, "pause", _PAUSE)
    add_experiment(command)
    add_trials(command, "+")
    add_flag(command, "--now", "at once: what a trial has trained since its checkpoint runs again")


def _add_limit(commands: Any) -> None:
    command = add_command(commands, "limit", _LIMIT)
    add_experiment(command)
    command.add_argument(
        "most", type=number, metavar="N", help="trials at once from now on; 0: no limit"
    )


def _add_add(commands: Any) -> None:
    command = add_command(commands, "add", _ADD)
    add_experiment(command)
    what = command.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--trials", dest="count", type=number, metavar="N", help="N more samples of the search"
    )
    what.add_argument(
        "--config",
        metavar="JSON",
        help="one trial with these values, as in '{\"lr\": 0.1}', or the path of a .json file",
    )


def _add_note(commands: Any) -> None:
    command = add_command(commands, "note", _NOTE)
    add_experiment(command)
    trial = command.add_argument("trial", metavar="TRIAL", help=TRIAL)
    trial.completer = complete_trial  # type: ignore[attr-defined]
    command.add_argument("text", metavar="TEXT", help="the note; '' removes it")
