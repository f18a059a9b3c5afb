"""What may be said to the commands that look at experiments, and to the one that goes on."""

from __future__ import annotations

import argparse
from typing import Any

from holdfast.cli.completing import complete_experiment, complete_place, complete_trial
from holdfast.cli.words import CODES, EXPERIMENT, TRIAL, bound, number, seconds

_LS = (
    "List the experiments in a directory or a bucket: how each stands, its trials, the best of "
    "them, age and size. They may be running; nothing is changed, and none of your code is loaded."
)
_SHOW = (
    "Show one experiment: how it stands, its best trial, a table of its trials, and what failed, "
    "with the place of its logs. It may be running; nothing is changed."
)
_LOGS = (
    "Print what a trial, or a rank of it, has written to stdout or stderr. With --follow it goes "
    "on with what is written until the trial has ended, also when it or the whole run is started "
    "again; Ctrl-C ends it before."
)
_BEST = (
    "Print the configuration of the best trial as JSON. Metric and mode are the experiment's "
    "unless they are given."
)
_EXPORT = (
    "Write a table: a line for each trial with its last values and its config, or with --rows one "
    "for each report; or write the trials into an Optuna storage, where optuna-dashboard shows "
    "them. It may be running; run again, an Optuna storage is brought up to date."
)
_RESUME = (
    "Go on with an experiment that was interrupted or killed, as Tuner.restore(PATH).fit() does. "
    "This runs your code: the trainable that was kept in tuner.pkl or trainer.pkl, or the one "
    "that --trainable names. Modules are found from the current directory. With --extend it goes "
    "on with more than it was begun with, and tells what changes."
)
_COMPLETION = "Print what makes a shell complete this command, with experiments and trials."
_SCOPES = ("last", "all", "avg", "last-5-avg", "last-10-avg")


def add_browsing(rooms: Any) -> None:
    """ls, show, logs, best, export, resume and completion, below the subparsers `rooms`."""
    _add_ls(rooms)
    _add_show(rooms)
    _add_logs(rooms)
    _add_best(rooms)
    _add_export(rooms)
    _add_resume(rooms)
    _add_completion(rooms)


def _add(rooms: Any, name: str, told: str, *, json_help: str) -> argparse.ArgumentParser:
    short = told.partition(": ")[0].partition(". ")[0].rstrip(".")
    command: argparse.ArgumentParser = rooms.add_parser(
        name, help=short[0].lower() + short[1:], description=told, epilog=CODES
    )
    command.add_argument("--json", action="store_true", help=json_help)
    return command


def _add_experiment(command: argparse.ArgumentParser) -> None:
    path = command.add_argument("path", metavar="EXPERIMENT", help=EXPERIMENT)
    path.completer = complete_experiment  # type: ignore[attr-defined]


def _add_run(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--run",
        type=number,
        metavar="N",
        help="of several experiments that were run under this name the Nth (default: the newest)",
    )


def _add_goal(command: argparse.ArgumentParser) -> None:
    command.add_argument("--metric", help="instead of the experiment's; a/b for a nested one")
    command.add_argument("--mode", choices=("max", "min"), help="instead of the experiment's")


def _add_ls(rooms: Any) -> None:
    command = _add(rooms, "ls", _LS, json_help="one JSON object, for scripts")
    path = command.add_argument(
        "path",
        metavar="PATH",
        nargs="?",
        help="a directory or URI, as storage_path takes it (default: RAY_STORAGE, "
        "RAY_AIR_LOCAL_CACHE_DIR or ~/ray_results)",
    )
    path.completer = complete_place  # type: ignore[attr-defined]
    command.add_argument("--quick", action="store_true", help="do not add up the sizes")


def _add_show(rooms: Any) -> None:
    command = _add(rooms, "show", _SHOW, json_help="one JSON object, with every trial")
    _add_experiment(command)
    _add_run(command)
    command.add_argument(
        "-n", "--rows", type=number, default=20, metavar="N", help="trials in the table (0: all)"
    )


def _add_logs(rooms: Any) -> None:
    told = "one JSON object with the text in it; with --follow one for each line"
    command = _add(rooms, "logs", _LOGS, json_help=told)
    _add_experiment(command)
    _add_run(command)
    trial = command.add_argument("trial", metavar="TRIAL", help=TRIAL)
    trial.completer = complete_trial  # type: ignore[attr-defined]
    which = command.add_mutually_exclusive_group()
    which.add_argument("--stderr", action="store_true", help="stderr instead of stdout")
    which.add_argument("--error", action="store_true", help="error.txt: how its attempts failed")
    command.add_argument("--rank", type=int, default=0, metavar="R", help="of this rank")
    command.add_argument("-n", "--tail", type=number, metavar="N", help="only the last N lines")
    how = command.add_mutually_exclusive_group()
    how.add_argument("-f", "--follow", action="store_true", help="go on until the trial has ended")
    how.add_argument("--path", dest="only_path", action="store_true", help="only its place")
    command.add_argument(
        "--interval",
        type=seconds,
        metavar="S",
        help="with --follow: look for more every S seconds "
        "(default: 0.5 on this machine, 5 in storage)",
    )


def _add_best(rooms: Any) -> None:
    command = _add(rooms, "best", _BEST, json_help="the trial and its value beside the config")
    _add_experiment(command)
    _add_run(command)
    _add_goal(command)
    command.add_argument(
        "--scope",
        choices=_SCOPES,
        default="last",
        help="which of a trial's values count (default: the last)",
    )


def _add_export(rooms: Any) -> None:
    command = _add(rooms, "export", _EXPORT, json_help="one JSON object that says what was done")
    _add_experiment(command)
    _add_run(command)
    command.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="a new file, whose ending says how: .csv, .parquet or .json (default: CSV to stdout)",
    )
    command.add_argument(
        "--format", choices=("csv", "parquet", "json"), help="instead of what the ending says"
    )
    command.add_argument("--rows", action="store_true", help="a line for each report")
    command.add_argument("--force", action="store_true", help="replace a FILE that is there")
    command.add_argument(
        "--optuna", metavar="URL", help="an Optuna storage instead, such as sqlite:///trials.db"
    )
    command.add_argument("--study", metavar="NAME", help="the study's name there")
    _add_goal(command)


def _add_resume(rooms: Any) -> None:
    command = _add(rooms, "resume", _RESUME, json_help="at the end, one JSON object as of show")
    _add_experiment(command)
    command.add_argument(
        "--trainable", metavar="MODULE:NAME", help="the trainable, where the kept one is of no use"
    )
    command.add_argument(
        "--untrusted",
        action="store_true",
        help="unpickle nothing from the experiment: give --trainable, too. Where more is needed, "
        "the error says what to give to Tuner.restore(trusted=False)",
    )
    errored = command.add_mutually_exclusive_group()
    errored.add_argument(
        "--resume-errored", action="store_true", help="failed trials go on from their checkpoints"
    )
    errored.add_argument(
        "--restart-errored", action="store_true", help="failed trials begin again"
    )
    command.add_argument(
        "--skip-unfinished", action="store_true", help="unfinished trials do not go on"
    )
    finished = command.add_mutually_exclusive_group()
    finished.add_argument(
        "--resume-finished",
        action="store_true",
        help="finished trials go on from their checkpoints, as far as --stop lets them",
    )
    finished.add_argument(
        "--restart-finished", action="store_true", help="finished trials begin again"
    )
    command.add_argument(
        "--extend",
        action="store_true",
        help="go on with another --num-samples, --stop or --time-budget than it has; all that "
        "there is is kept",
    )
    command.add_argument("--num-samples", type=int, metavar="N", help="in all; -1: without end")
    command.add_argument(
        "--stop",
        type=bound,
        action="append",
        metavar="KEY=VALUE",
        help="end a trial that reports KEY as high as VALUE, instead of the stop condition that "
        "it has; again for more",
    )
    command.add_argument(
        "--time-budget",
        type=float,
        metavar="S",
        help="seconds that it may take from its beginning on, in all its runs; inf: no limit",
    )
    command.add_argument(
        "--max-concurrent-trials", type=int, metavar="N", help="at once, from now on; 0: no limit"
    )


def _add_completion(rooms: Any) -> None:
    command = rooms.add_parser(
        "completion",
        help="print what makes a shell complete this command",
        description=_COMPLETION,
        epilog='bash and zsh: eval "$(holdfast completion bash)"; '
        "fish: holdfast completion fish | source",
    )
    command.add_argument("shell", choices=("bash", "zsh", "fish"))
