"""The arguments of all commands but the doctor's."""

from __future__ import annotations

import argparse
from typing import Any

from holdfast.cli.common_arguments import (
    EXPERIMENT,
    TRIAL,
    add_command,
    add_experiment,
    add_flag,
    add_goal,
    add_root,
    add_several,
    add_trial,
    add_value,
    bound,
    complete_experiment,
    complete_place,
    number,
    port,
    seconds,
    tag,
    time_limit,
)

_LS = (
    "List the experiments in a directory or a bucket: state, trials, best trial, age and size. "
    "Works on running experiments. Changes nothing, and loads none of your code."
)
_SHOW = (
    "Show one experiment: its state, its best trial, a table of its trials, and its failures with "
    "their logs. Works on a running experiment, and changes nothing."
)
_NODES = (
    "Show the nodes of an experiment on a cluster: what each has, what its trials hold of that, "
    "when it joined and was last heard from, and why others have left. Works on a running "
    "experiment, and changes nothing."
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
    "Write a table, or a model: one line for each trial with its last values and its config, or "
    "with --rows one for each report; or with --optuna the trials into an Optuna storage, for "
    "optuna-dashboard, which a second export updates; or with --model the checkpoint of the best "
    "trial. Works on a running experiment."
)
_RESUME = (
    "Resume an experiment that was interrupted or killed, as Tuner.restore(PATH).fit() does. This "
    "runs your code: the trainable in tuner.pkl or trainer.pkl, or the one that --trainable "
    "names. Modules are found from the current directory. With --extend it adds trials, "
    "iterations or time, and prints the changes. With TRIAL it instead lets trials of a live run "
    "continue that holdfast pause has paused."
)
_COMPLETION = "Print a shell's completion script for this command, its experiments and trials."
_REPLAY = (
    "Show what a run would have cost under another scheduler or on other workers: simulate its "
    "configs with their recorded curves, in virtual time. Changes nothing, and loads none of your "
    "code."
)
_COMPARE = (
    "Compare experiments, or trials: their states, the best of each, the parameters that differ, "
    "and the learning curves. Works on running experiments, and changes nothing."
)
_PLOT = (
    "Draw a picture of an experiment, with matplotlib: learning_curves, parallel_coordinates, "
    "importance and others. Works on a running experiment, and changes nothing there."
)
_RM = (
    "Remove whole experiments, here and in storage: shows what it would free, and asks first. "
    "Refuses one that runs here, or that another machine has published recently. An interrupted "
    "removal can be repeated."
)
_WEB = (
    "Serve a page that shows experiments and steers running ones, for a browser on this machine, "
    "until Ctrl-C. It prints the URL, which has a token: nobody is answered without it. Needs "
    "holdfast[web]."
)
_SCOPES = ("last", "all", "avg", "last-5-avg", "last-10-avg")


def add_browsing(commands: Any) -> None:
    """All commands but the doctor's, below the subparsers `commands`."""
    _add_ls(commands)
    _add_show(commands)
    _add_nodes(commands)
    _add_logs(commands)
    _add_best(commands)
    _add_export(commands)
    _add_compare(commands)
    _add_plot(commands)
    _add_rm(commands)
    _add_resume(commands)
    _add_completion(commands)
    _add_replay(commands)
    _add_web(commands)


def _add_of_run(commands: Any, name: str, text: str, json_help: str) -> argparse.ArgumentParser:
    """A command about an experiment, or about one of its runs."""
    command = add_command(commands, name, text, json_help=json_help)
    add_experiment(command)
    text = "the Nth of several runs under this name (default: the newest)"
    add_value(command, "--run N", text, type=number)
    return command


def _add_ls(commands: Any) -> None:
    command = add_command(commands, "ls", _LS)
    add_value(
        command,
        "path PATH",
        "a directory or URI, as for storage_path (default: RAY_STORAGE, "
        "RAY_AIR_LOCAL_CACHE_DIR or ~/ray_results)",
        completer=complete_place,
        nargs="?",
    )
    add_flag(command, "--quick", "leave the sizes out")
    text = "only those whose RunConfig has this tag; may be repeated"
    add_several(command, "--tag NAME=VALUE", text, type=tag)


def _add_show(commands: Any) -> None:
    command = _add_of_run(commands, "show", _SHOW, "one JSON object, with every trial")
    add_value(command, "-n --rows N", "trials in the table (0: all)", type=number, default=20)
    add_flag(command, "--costs", "what trials have used, before their metrics")
    text = (
        "show it again until no process runs it; where the output is not a terminal, each change"
    )
    add_flag(command, "-w --watch", text)
    text = "with --watch: look every S seconds (default: 1 on this machine, 5 in storage)"
    add_value(command, "--interval S", text, type=seconds)


def _add_nodes(commands: Any) -> None:
    command = _add_of_run(commands, "nodes", _NODES, "one JSON object, with every node")
    add_flag(command, "--all", "also the nodes that left before the last restore")


def _add_logs(commands: Any) -> None:
    json_help = "one JSON object with the text; with --follow one for each line"
    command = _add_of_run(commands, "logs", _LOGS, json_help)
    add_trial(command)
    which = command.add_mutually_exclusive_group()
    add_flag(which, "--stderr", "stderr instead of stdout")
    add_flag(which, "--error", "error.txt: the traceback of each attempt")
    add_value(command, "--rank R", "the output of this rank", type=int, default=0)
    add_value(command, "-n --tail N", "only the last N lines", type=number)
    how = command.add_mutually_exclusive_group()
    add_flag(how, "-f --follow", "keep printing until the trial has ended")
    add_flag(how, "--path", "print only the path of the file", dest="only_path")
    add_value(
        command,
        "--interval S",
        "with --follow: look for new output every S seconds "
        "(default: 0.5 on this machine, 5 in storage)",
        type=seconds,
    )


def _add_best(commands: Any) -> None:
    json_help = "one JSON object with the trial, its value and the config"
    command = _add_of_run(commands, "best", _BEST, json_help)
    add_goal(command)
    _add_scope(command)
    text = "copy the trial's checkpoint to this new or empty directory"
    add_value(command, "--checkpoint DIR", text)


def _add_scope(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--scope",
        choices=_SCOPES,
        default="last",
        help="which of a trial's values count (default: the last); all: also the best row's "
        "checkpoint instead of the newest",
    )


def _add_export(commands: Any) -> None:
    command = _add_of_run(commands, "export", _EXPORT, "one JSON object with the result")
    text = "a new .csv, .parquet or .json file (default: CSV to stdout)"
    add_value(command, "-o --output FILE", text)
    forms = ("csv", "parquet", "json")
    command.add_argument("--format", choices=forms, help="default: from the ending of FILE")
    add_flag(command, "--rows", "one line for each report")
    add_flag(command, "--force", "replace an existing FILE")
    add_value(command, "--optuna URL", "an Optuna storage instead, such as sqlite:///trials.db")
    add_value(command, "--study NAME", "the study's name there")
    add_value(
        command,
        "--model DIR",
        "the checkpoint of the best trial instead, in a new or empty directory, with "
        "params.json and metrics.json",
    )
    add_trial(command, "--trial", f"with --model: not the best trial, but {TRIAL}")
    add_goal(command)
    _add_scope(command)


def _add_compare(commands: Any) -> None:
    command = add_command(commands, "compare", _COMPARE)
    add_value(
        command,
        "sides EXPERIMENT[:TRIAL]",
        f"{EXPERIMENT}. With :TRIAL a trial of it: {TRIAL}. Without, its best trial",
        completer=complete_experiment,
        nargs="+",
    )
    add_root(command)
    add_goal(command)
    text = "the horizontal axis, such as time_total_s (default: training_iteration)"
    add_value(command, "--x METRIC", text, default="training_iteration")
    text = "draw the curves into this .png, .svg or .pdf file, with matplotlib"
    add_value(command, "-o --output FILE", text)


def _add_plot(commands: Any) -> None:
    command = _add_of_run(commands, "plot", _PLOT, "one JSON object with the file's path")
    add_value(
        command,
        "--kind KIND",
        "learning_curves (the default), parallel_coordinates, importance, ...: an unknown "
        "one prints all",
        default="learning_curves",
    )
    text = "a .png, .svg or .pdf file, which is replaced (default: NAME-KIND.png here)"
    add_value(command, "-o --output FILE", text)
    add_goal(command, "; for --kind pareto two, as in time_s,accuracy")


def _add_rm(commands: Any) -> None:
    command = add_command(commands, "rm", _RM, json_help="one JSON object; needs --yes")
    add_experiment(command, "paths", f"{EXPERIMENT}; of one in storage, the URI", nargs="+")
    part = command.add_mutually_exclusive_group()
    add_flag(part, "--local", "only the tree on this machine")
    add_flag(part, "--storage", "only what is in storage")
    add_flag(command, "-y --yes", "do not ask")


def _add_resume(commands: Any) -> None:
    json_help = "at the end, one JSON object as from show"
    command = add_command(commands, "resume", _RESUME, json_help=json_help)
    add_experiment(command)
    text = f"{TRIAL}; without one, the experiment is restored"
    add_trial(command, "trials", text, nargs="*")
    add_value(
        command,
        "--trainable MODULE:NAME",
        "the trainable to run instead of the stored one: new code, or one that can be "
        "loaded. FILE.py:NAME takes it from a script and does not run the script",
    )
    add_flag(
        command,
        "--untrusted",
        "unpickle nothing from the experiment; needs --trainable. If more is needed, the "
        "error says what to pass to Tuner.restore(trusted=False)",
    )
    errored = command.add_mutually_exclusive_group()
    add_flag(errored, "--resume-errored", "resume failed trials from their checkpoints")
    add_flag(errored, "--restart-errored", "start failed trials again")
    add_flag(command, "--skip-unfinished", "do not resume unfinished trials")
    finished = command.add_mutually_exclusive_group()
    text = "resume finished trials from their checkpoints, up to --stop"
    add_flag(finished, "--resume-finished", text)
    add_flag(finished, "--restart-finished", "start finished trials again")
    add_flag(
        command,
        "--extend",
        "allow --num-samples, --stop and --time-budget to change the experiment; existing "
        "trials are kept",
    )
    add_value(command, "--num-samples N", "trials in total; -1: no limit", type=int)
    text = "end a trial when KEY reaches VALUE; replaces the whole stop condition; repeatable"
    add_several(command, "--stop KEY=VALUE", text, type=bound)
    text = "the time in total, over all restores: seconds, or 2h, 90m; inf: no limit"
    add_value(command, "--time-budget T", text, type=time_limit)
    text = "trials at once, from now on; 0: no limit"
    add_value(command, "--max-concurrent-trials N", text, type=int)


def _add_completion(commands: Any) -> None:
    command = commands.add_parser(
        "completion",
        help="print a shell's completion script",
        description=_COMPLETION,
        epilog='bash and zsh: eval "$(holdfast completion bash)"; '
        "fish: holdfast completion fish | source",
    )
    command.add_argument("shell", choices=("bash", "zsh", "fish"))


def _add_replay(commands: Any) -> None:
    command = add_command(commands, "replay", _REPLAY)
    add_experiment(command)
    text = "asha, hyperband, ... as for tune.create_scheduler() (default: fifo)"
    add_value(command, "--scheduler NAME", text, default="fifo")
    text = "an argument of the scheduler, such as max_t=81; VALUE is JSON or text; repeatable"
    add_several(command, "--option NAME=VALUE", text)
    add_value(command, "--workers N", "trials at once (default: as in the run)", type=number)
    add_goal(command)
    add_value(command, "--seed S", "seed of the scheduler", type=int, default=0)


def _add_web(commands: Any) -> None:
    command = add_command(commands, "web", _WEB, json_help="one JSON object with the url")
    text = "a directory or URI with experiments, or an experiment (default: as for ls)"
    add_value(command, "path PATH", text, completer=complete_experiment, nargs="?")
    text = "default: 8765 or, if that is in use, the next free one; 0: any"
    add_value(command, "--port N", text, type=port)
    add_flag(command, "--open", "open the URL in a browser")
    text = "the address to listen on (default: 127.0.0.1, which only this machine reaches)"
    add_value(command, "--host ADDRESS", text, default="127.0.0.1")
    text = "the path at which a proxy serves the page, such as Jupyter's /proxy/8765"
    add_value(command, "--base-url PATH", text, default="/")
    text = "also answer for this host, as of a proxy; may be repeated"
    add_several(command, "--allow-host NAME", text)
