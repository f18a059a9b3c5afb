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
    add_group,
    add_several,
    add_trial,
    add_value,
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
    stop = _add_order(commands, "stop", _STOP_TRIALS)
    text = f"{TRIAL}; without one, the run stops, to be resumed later"
    add_trial(stop, "trials", text, nargs="*")
    add_flag(stop, "-y --yes", "do not ask before trials end for good")
    pause = _add_order(commands, "pause", _PAUSE)
    add_trial(pause, "trials", nargs="+")
    add_flag(pause, "--now", "at once: what a trial has trained since its checkpoint runs again")
    limit = _add_order(commands, "limit", _LIMIT)
    add_value(limit, "most N", "trials at once from now on; 0: no limit", type=number)
    add = _add_order(commands, "add", _ADD_TRIALS)
    what = add.add_mutually_exclusive_group(required=True)
    add_value(what, "--trials N", "N more samples of the search", dest="count", type=number)
    text = "one trial with these values, as in '{\"lr\": 0.1}', or the path of a .json file"
    add_value(what, "--config JSON", text)
    note = _add_order(commands, "note", _NOTE)
    add_trial(note)
    add_value(note, "text TEXT", "the note; '' removes it")


def _add_order(commands: Any, name: str, description: str) -> argparse.ArgumentParser:
    command = add_command(commands, name, description)
    add_experiment(command)
    return command


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
    parser.set_defaults(json=False, path=None)
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
    json_help = "with --check: one JSON object for each script"
    command = add_command(commands, "ray", _RAY, json_help=json_help)
    text = "run nothing; list what the scripts use of Ray: the same here, different, missing"
    add_value(command, "--check FILE", text, nargs="*")  # those after another option are words
    text, rest = "run a module as a script, with the arguments that follow", argparse.REMAINDER
    add_value(command, "-m MODULE", text, dest="module", nargs=rest)
    add_value(command, "words SCRIPT", "the script, and its arguments", nargs=rest)


def add_run(commands: Any) -> None:
    """`run`, below the subparsers `commands`."""
    json_help = "at the end, one JSON object as from show"
    command = add_command(commands, "run", _RUN, json_help=json_help)
    add_value(command, "path FILE", "the sweep file, such as sweep.yaml")
    add_value(command, "--name N", "the experiment's name (default: the file's, or as it says)")
    add_value(command, "--storage URI", "a directory or URI for the results, as storage_path")
    add_several(
        command,
        "--set KEY=VALUE",
        "another value in the file, such as parameters.lr.max=0.1; VALUE is JSON or text; "
        "repeatable",
    )
    add_value(command, "--samples N", "num_samples: how many trials", type=int)
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
    short = "verify or repair an experiment, or test a storage"
    description = "Verify and repair experiments. 'holdfast doctor PATH' verifies."
    several = add_group(commands, "doctor", short, description)
    for name, text in (("verify", _VERIFY), ("repair", _REPAIR)):
        depth = _add_examination(several, name, text).add_mutually_exclusive_group()
        add_flag(depth, "--quick", "check only names and sizes of checkpoints, no checksums")
        add_flag(depth, "--deep", "also download every checkpoint from storage")
    sync = _add_examination(several, "sync", _SYNC)
    text = "also download every checkpoint from storage, and replace changed ones"
    add_flag(sync, "--deep", text)
    text = "how long each upload is retried (default 300)"
    add_value(sync, "--timeout SECONDS", text, type=float, default=300.0)
    add_flag(_add_examination(several, "gc", _GC), "--yes", "remove them")
    preflight = add_command(several, "preflight", _PREFLIGHT)
    add_value(preflight, "path URI", "the storage_path of RunConfig: a directory, or a URI")
    text = "size of the large object (default 24; S3 uses parts from 16)"
    add_value(preflight, "--mib N", text, type=int, default=24)
    add_experiment(add_command(several, "report", _REPORT), nargs="?")


def _add_examination(several: Any, name: str, description: str) -> argparse.ArgumentParser:
    command = _add_order(several, name, description)
    add_value(
        command,
        "--storage URI",
        "the experiment's URI, if PATH is the local tree of an experiment with storage elsewhere",
    )
    return command


def with_command(arguments: list[str]) -> list[str]:
    """The arguments with the command that `holdfast doctor PATH` leaves out."""
    if not arguments or arguments[0] != "doctor":
        return arguments
    words = arguments[1:]
    is_help = not words or {"-h", "--help"} & set(words)
    if is_help or any(word in COMMANDS for word in words):
        return arguments
    return ["doctor", "verify", *words]


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
    short = "run several scripts one after another or side by side"
    several = add_group(commands, "queue", short, _QUEUE)
    _add_add(several)
    _add(several, "ls", _LS)
    run = _add(several, "run", _QUEUE_RUN)
    add_value(run, "-j --jobs N", "jobs at once (default: 1)", type=_at_least_one, default=1)
    add_flag(run, "--forever", "wait for more jobs when none is left")
    for name, text in (("rm", _RM), ("stop", _STOP), ("retry", _RETRY)):
        command = _add(several, name, text)
        add_value(command, "ids ID", "a job's number", nargs="+", type=number)
        if name == "retry":
            add_flag(command, "--anew", "begin new experiments; those that it has begun stay")
    logs = _add(several, "logs", _LOGS)
    add_value(logs, "id ID", "a job's number", type=number)
    add_flag(logs, "--stderr", "stderr instead of stdout")
    add_value(logs, "-n --tail N", "only the last N lines", type=number)


def with_list(arguments: list[str]) -> list[str]:
    """The arguments with the command that a bare `holdfast queue` leaves out."""
    if arguments[:1] != ["queue"] or arguments[1:2] not in ([], ["--json"], ["--queue"]):
        return arguments
    return ["queue", "ls", *arguments[1:]]


def _add(several: Any, name: str, text: str) -> argparse.ArgumentParser:
    command = add_command(several, name, text)
    text = "the queue's folder (default: HOLDFAST_QUEUE, or ~/.local/share/holdfast/queue)"
    add_value(command, "--queue DIR", text)
    return command


def _add_add(several: Any) -> None:
    command = _add(several, "add", _ADD)
    add_value(command, "--name NAME", "default: the script's name")
    add_value(command, "--dir DIR", "default: the current directory")
    add_value(
        command,
        "--cpus N",
        "CPUs that the job waits for and holds as a whole; without this and --gpus its "
        "trials share the machine, each with what it asks for",
        type=_at_least_one,
    )
    add_value(command, "--gpus N", "the same for GPUs", type=number)
    text = "the command and its arguments; after -- if it begins with a dash"
    add_value(command, "words COMMAND", text, nargs=argparse.REMAINDER)


def _at_least_one(text: str) -> int:
    found = number(text)
    if not found:
        raise argparse.ArgumentTypeError("it must be at least 1")
    return found
