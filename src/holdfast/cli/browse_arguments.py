"""The arguments of the commands that read experiments, and of `resume`."""

from __future__ import annotations

import argparse
from typing import Any

from holdfast.cli.completing import complete_experiment, complete_place, complete_trial
from holdfast.cli.words import CODES, EXPERIMENT, TRIAL, bound, number, seconds

_LS = (
    "List the experiments in a directory or a bucket: state, trials, best trial, age and size. "
    "Works on running experiments. Changes nothing, and loads none of your code."
)
_SHOW = (
    "Show one experiment: its state, its best trial, a table of its trials, and its failures with "
    "their logs. Works on a running experiment, and changes nothing."
)
_LOGS = (
    "Print the stdout or stderr of a trial or a rank. With --follow it keeps printing until the "
    "trial has ended, through retries of the trial and restarts of the run; Ctrl-C stops it."
)
_BEST = (
    "Print the configuration of the best trial as JSON. Metric and mode default to the "
    "experiment's."
)
_EXPORT = (
    "Write a table: one line for each trial with its last values and its config, or with --rows "
    "one for each report; or write the trials into an Optuna storage, for optuna-dashboard. Works "
    "on a running experiment. A second export updates an Optuna storage."
)
_RESUME = (
    "Resume an experiment that was interrupted or killed, as Tuner.restore(PATH).fit() does. This "
    "runs your code: the trainable in tuner.pkl or trainer.pkl, or the one that --trainable "
    "names. Modules are found from the current directory. With --extend it adds trials, "
    "iterations or time, and prints the changes."
)
_COMPLETION = "Print a shell's completion script for this command, its experiments and trials."
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
        help="the Nth of several runs under this name (default: the newest)",
    )


def _add_goal(command: argparse.ArgumentParser) -> None:
    command.add_argument("--metric", help="default: the experiment's; a/b for a nested metric")
    command.add_argument("--mode", choices=("max", "min"), help="default: the experiment's")


def _add_ls(rooms: Any) -> None:
    command = _add(rooms, "ls", _LS, json_help="one JSON object, for scripts")
    path = command.add_argument(
        "path",
        metavar="PATH",
        nargs="?",
        help="a directory or URI, as for storage_path (default: RAY_STORAGE, "
        "RAY_AIR_LOCAL_CACHE_DIR or ~/ray_results)",
    )
    path.completer = complete_place  # type: ignore[attr-defined]
    command.add_argument("--quick", action="store_true", help="leave the sizes out")


def _add_show(rooms: Any) -> None:
    command = _add(rooms, "show", _SHOW, json_help="one JSON object, with every trial")
    _add_experiment(command)
    _add_run(command)
    command.add_argument(
        "-n", "--rows", type=number, default=20, metavar="N", help="trials in the table (0: all)"
    )


def _add_logs(rooms: Any) -> None:
    told = "one JSON object with the text; with --follow one for each line"
    command = _add(rooms, "logs", _LOGS, json_help=told)
    _add_experiment(command)
    _add_run(command)
    trial = command.add_argument("trial", metavar="TRIAL", help=TRIAL)
    trial.completer = complete_trial  # type: ignore[attr-defined]
    which = command.add_mutually_exclusive_group()
    which.add_argument("--stderr", action="store_true", help="stderr instead of stdout")
    which.add_argument(
        "--error", action="store_true", help="error.txt: the traceback of each attempt"
    )
    command.add_argument(
        "--rank", type=int, default=0, metavar="R", help="the output of this rank"
    )
    command.add_argument("-n", "--tail", type=number, metavar="N", help="only the last N lines")
    how = command.add_mutually_exclusive_group()
    how.add_argument(
        "-f", "--follow", action="store_true", help="keep printing until the trial has ended"
    )
    how.add_argument(
        "--path", dest="only_path", action="store_true", help="print only the path of the file"
    )
    command.add_argument(
        "--interval",
        type=seconds,
        metavar="S",
        help="with --follow: look for new output every S seconds "
        "(default: 0.5 on this machine, 5 in storage)",
    )


def _add_best(rooms: Any) -> None:
    command = _add(
        rooms, "best", _BEST, json_help="one JSON object with the trial, its value and the config"
    )
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
    command = _add(rooms, "export", _EXPORT, json_help="one JSON object with the result")
    _add_experiment(command)
    _add_run(command)
    command.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="a new .csv, .parquet or .json file (default: CSV to stdout)",
    )
    command.add_argument(
        "--format", choices=("csv", "parquet", "json"), help="default: from the ending of FILE"
    )
    command.add_argument("--rows", action="store_true", help="one line for each report")
    command.add_argument("--force", action="store_true", help="replace an existing FILE")
    command.add_argument(
        "--optuna", metavar="URL", help="an Optuna storage instead, such as sqlite:///trials.db"
    )
    command.add_argument("--study", metavar="NAME", help="the study's name there")
    _add_goal(command)


def _add_resume(rooms: Any) -> None:
    command = _add(rooms, "resume", _RESUME, json_help="at the end, one JSON object as from show")
    _add_experiment(command)
    command.add_argument(
        "--trainable",
        metavar="MODULE:NAME",
        help="the trainable, if the stored one cannot be used",
    )
    command.add_argument(
        "--untrusted",
        action="store_true",
        help="unpickle nothing from the experiment; needs --trainable. If more is needed, the "
        "error says what to pass to Tuner.restore(trusted=False)",
    )
    errored = command.add_mutually_exclusive_group()
    errored.add_argument(
        "--resume-errored", action="store_true", help="resume failed trials from their checkpoints"
    )
    errored.add_argument(
        "--restart-errored", action="store_true", help="start failed trials again"
    )
    command.add_argument(
        "--skip-unfinished", action="store_true", help="do not resume unfinished trials"
    )
    finished = command.add_mutually_exclusive_group()
    finished.add_argument(
        "--resume-finished",
        action="store_true",
        help="resume finished trials from their checkpoints, up to --stop",
    )
    finished.add_argument(
        "--restart-finished", action="store_true", help="start finished trials again"
    )
    command.add_argument(
        "--extend",
        action="store_true",
        help="allow --num-samples, --stop and --time-budget to change the experiment; existing "
        "trials are kept",
    )
    command.add_argument(
        "--num-samples", type=int, metavar="N", help="trials in total; -1: no limit"
    )
    command.add_argument(
        "--stop",
        type=bound,
        action="append",
        metavar="KEY=VALUE",
        help="end a trial when KEY reaches VALUE; replaces the whole stop condition; repeatable",
    )
    command.add_argument(
        "--time-budget",
        type=float,
        metavar="S",
        help="seconds in total, over all restores; inf: no limit",
    )
    command.add_argument(
        "--max-concurrent-trials",
        type=int,
        metavar="N",
        help="trials at once, from now on; 0: no limit",
    )


def _add_completion(rooms: Any) -> None:
    command = rooms.add_parser(
        "completion",
        help="print a shell's completion script",
        description=_COMPLETION,
        epilog='bash and zsh: eval "$(holdfast completion bash)"; '
        "fish: holdfast completion fish | source",
    )
    command.add_argument("shell", choices=("bash", "zsh", "fish"))
    command.set_defaults(json=False, path=None)
