"""The arguments of the command line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from holdfast import __version__
from holdfast.cli.browse.arguments import add_browsing
from holdfast.cli.common_arguments import (
    CODES,
    TRIAL,
    add_command,
    add_experiment,
    add_flag,
    add_trials,
    complete_trial,
    number,
)

_STOP_TRIALS = (
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
_ADD_TRIALS = (
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
    _add_trials(commands)
    _add_note(commands)


def _add_stop(commands: Any) -> None:
    command = add_command(commands, "stop", _STOP_TRIALS)
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


def _add_trials(commands: Any) -> None:
    command = add_command(commands, "add", _ADD_TRIALS)
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


_RAY = (
    "Run a script written for Ray: `import ray` means holdfast in it and in its workers. An "
    "installed Ray is not touched. docs/moving-from-ray.md has the steps of a move."
)
_RUN = (
    "Run a sweep: a command of any language, once for each trial, as a YAML, JSON or TOML file "
    "says. The same command again resumes it, if it was interrupted. docs/sweep.md describes the "
    "file, and how a command reports."
)
_NEAR = 0.5


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Raises SystemExit: 0 after --help and --version, 2 for invalid arguments."""
    parser = _parser()
    if "_ARGCOMPLETE" in os.environ:  # a shell asks for completions
        import argcomplete

        argcomplete.autocomplete(parser, always_complete_options="long")
    given = list(arguments)
    if "#" in given and given[0] not in ("queue", "ray"):
        given = given[: given.index("#")]  # a pasted comment, which zsh passes on
    if given in ([], ["doctor"]):
        parser.explain(given)
    return parser.read(with_command(with_list(given)))


def _parser() -> Parser:
    parser = Parser(
        prog="holdfast",
        description="Run, list, show, resume and repair experiments of holdfast.",
        epilog=CODES,
    )
    parser.add_argument("--version", action="version", version=f"holdfast {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    add_browsing(commands)
    add_steering(commands)
    add_run(commands)
    add_ray(commands)
    add_doctor(commands)
    add_queue(commands)
    return parser


def add_ray(commands: Any) -> None:
    """`ray`, below the subparsers `commands`."""
    command = add_command(
        commands, "ray", _RAY, json_help="with --check: one JSON object for each script"
    )
    command.add_argument(
        "--check",
        nargs="*",  # those after another option are the words
        metavar="FILE",
        help="run nothing; list what the scripts use of Ray: the same here, different, missing",
    )
    command.add_argument(
        "-m",
        dest="module",
        nargs=argparse.REMAINDER,
        metavar="MODULE",
        help="run a module as a script, with the arguments that follow",
    )
    command.add_argument(
        "words", nargs=argparse.REMAINDER, metavar="SCRIPT", help="the script, and its arguments"
    )
    command.set_defaults(path=None)


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


class Parser(argparse.ArgumentParser):
    """An ArgumentParser of a command, or of a group of commands."""

    commands: Any = None

    def add_subparsers(self, **given: Any) -> Any:
        self.commands = super().add_subparsers(**given)
        return self.commands

    def read(self, arguments: Sequence[str]) -> argparse.Namespace:
        """The arguments as `parse_args` reads them. Raises SystemExit."""
        self._check_command(arguments)
        found, rest = self.parse_known_args(arguments)
        if hasattr(found, "trials") and not any(word.startswith("-") for word in rest):
            # argparse takes no argument of a list after an option: `stop EXPERIMENT --yes TRIAL`.
            found.trials, rest = [*found.trials, *rest], []
        if rest:
            self._innermost(arguments).refuse(rest)
        return found

    def explain(self, arguments: Sequence[str]) -> NoReturn:
        """Print the help of the command that the arguments name, since its own are missing.
        Raises SystemExit."""
        self._innermost(arguments).print_help(sys.stderr)
        raise SystemExit(2)

    def refuse(self, rest: Sequence[str]) -> NoReturn:
        """Raises SystemExit, naming the arguments that this command does not have."""
        options = [name for name in self._option_string_actions if name.startswith("--")]
        given = [word.partition("=")[0] for word in rest if word.startswith("-")]
        near = [found for word in given for found in _near(word, options)]
        meant = f". Did you mean {' '.join(dict.fromkeys(near))}?" if near else ""
        if self.prog.endswith(" show") and len(rest) == 1 and not given:
            self.error(
                f"show takes one experiment. For a trial: holdfast logs EXPERIMENT {rest[0]}"
            )
        self.error(f"unrecognized arguments: {' '.join(rest)}{meant}")

    def _check_command(self, arguments: Sequence[str]) -> None:
        """Raises SystemExit for an unknown command. Options before it are the parser's own."""
        word = arguments[0] if arguments else "-"
        if self.commands is None or word.startswith("-"):
            return
        known = self.commands.choices
        if word not in known:
            near = _near(word, known)
            meant = f"Did you mean {near[0]}?" if near else f"There are {', '.join(known)}"
            self.error(f"there is no command {word!r}. {meant}")
        known[word]._check_command(arguments[1:])

    def _innermost(self, arguments: Sequence[str]) -> Parser:
        """The parser of the command that the arguments begin with."""
        known = {} if self.commands is None else self.commands.choices
        found: Parser | None = known.get(arguments[0]) if arguments else None
        return self if found is None else found._innermost(arguments[1:])


def _near(word: str, known: Iterable[str]) -> list[str]:
    import difflib  # only errors need it

    return difflib.get_close_matches(word, list(known), 1, _NEAR)


# -- the arguments of `holdfast doctor` -----------------------------------------------------------

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


# -- the arguments of `holdfast queue` ------------------------------------------------------------

_QUEUE = (
    "Run commands one after another or side by side, from plain files: no daemon, and a killed "
    "run or a reboot loses nothing. 'queue run' starts what is due."
)
_ADD = (
    "Add a command. A script.py runs with this Python, a sweep.yaml with 'holdfast run'. It runs "
    "in the current directory, with the environment of 'queue run'."
)
_LS = "List the jobs: state, exit code, command, and the experiment that a job has begun."
_QUEUE_RUN = (
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
    run = _add(several, "run", _QUEUE_RUN)
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
