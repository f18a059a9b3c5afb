"""The commands of the queue: change its files, run it, and print."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from holdfast.cli.browse.output import print_table
from holdfast.cli.printing import INTERRUPTED, SOUND, WRONG, answer, say, say_json
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.queue.job_experiments import JobExperiments
from holdfast.experiment.queue.queue_folder import (
    EXPERIMENTS,
    STDERR,
    STDOUT,
    Job,
    ListedJob,
    QueueFolder,
    State,
)
from holdfast.experiment.queue.runner import Happened, QueueRunner
from holdfast.names import printable
from holdfast.runtime.process_control import adopt_orphans
from holdfast.text.values import cut, duration, width_of
from holdfast.trial.errors import InvalidConfig

_HEADER = ["ID", "NAME", "STATE", "SINCE", "EXIT", "COMMAND", "EXPERIMENT"]
_INTERPRETER = re.compile(r"python[0-9.]*|(ba|da|z)?sh|torchrun|accelerate|uv|env|holdfast")
_SCRIPTS = (".py", ".sh", ".yaml", ".yml", ".json", ".toml")
_SWEEPS = (".yaml", ".yml", ".json", ".toml")
# The columns of a command that is cut for the experiment's name next to it.
_ENOUGH = 30
_STYLES = {
    State.WAITING: "",
    State.RUNNING: "cyan",
    State.INTERRUPTED: "yellow",
    State.STOPPED: "yellow",
    State.DONE: "green",
    State.FAILED: "red",
}


def perform(given: argparse.Namespace, settings: Settings) -> int:
    """Returns the exit code. Raises InvalidConfig, OSError."""
    folder = QueueFolder.of(given.queue, os.environ)
    match given.queue_command:
        case "add":
            return _add(given, folder)
        case "ls":
            return _ls(given, folder)
        case "run":
            return _run(given, folder)
        case "logs":
            return _logs(given, folder)
        case "rm":
            for number in given.ids:
                folder.known(number)  # all of them, or none
            return _change(given, [folder.remove(number) for number in given.ids], "removed")
        case "stop":
            jobs = [folder.change(number, Job.stopped_by_user) for number in given.ids]
            return _change(given, jobs, "stopped: it runs again after holdfast queue retry")
        case "retry":
            for number in given.ids if given.anew else ():
                folder.file(number, EXPERIMENTS).unlink(missing_ok=True)
            jobs = [folder.change(number, Job.retried) for number in given.ids]
            return _change(given, jobs, "due: holdfast queue run starts it")
        case _:
            raise AssertionError(given.queue_command)


def _add(given: argparse.Namespace, folder: QueueFolder) -> int:
    directory = Path(given.dir or ".").expanduser().absolute()
    words = command_of(given.words, directory)

    def make(number: int) -> Job:
        return Job(
            id=number,
            name=given.name or name_of(given.words),
            command=words,
            directory=str(directory),
            added_at=time.time(),
            cpus=given.cpus,
            gpus=given.gpus,
        )

    job = folder.add(make)
    plain = _plain(folder, ListedJob(job=job, state=State.WAITING))
    text = f"job {job.id}: {job.name} is added. holdfast queue run starts it"
    return answer(given, {"queue": str(folder.path), **plain}, text)


def name_of(given: list[str]) -> str:
    """The name of a job: of the script that an interpreter runs, else of the program."""
    words = given[1:] if given[:1] == ["--"] else given
    is_interpreter = _INTERPRETER.fullmatch(Path(words[0]).name)
    scripts = (word for word in words[1:] if word.endswith(_SCRIPTS)) if is_interpreter else ()
    return Path(next(iter(scripts), words[0])).stem


def command_of(given: list[str], directory: Path) -> list[str]:
    """The words of a command; a script.py runs with this interpreter, and the file of a sweep with
    `holdfast run`. Raises InvalidConfig."""
    words = given[1:] if given[:1] == ["--"] else given
    if not words:
        raise InvalidConfig("queue add needs a command, such as train.py --lr 0.1")
    if not directory.is_dir():
        raise InvalidConfig(f"--dir {directory}: there is no such directory")
    program = words[0]
    if program.endswith((".py", *_SWEEPS)):
        if not (directory / program).is_file():
            raise InvalidConfig(f"there is no file {program} in {directory}")
        run = [] if program.endswith(".py") else ["-m", "holdfast", "run"]
        return [sys.executable, *run, *words]
    found = directory / program if "/" in program else shutil.which(program)
    if found is None or not os.access(found, os.X_OK):
        raise InvalidConfig(f"{program} cannot be run: no such program")
    return words


def _ls(given: argparse.Namespace, folder: QueueFolder) -> int:
    listed = folder.jobs()
    if given.json:
        say_json({"queue": str(folder.path), "jobs": [_plain(folder, one) for one in listed]})
        return SOUND
    if not listed:
        say(f"There is no job in {folder.path}. holdfast queue add script.py adds one.")
        return SOUND
    now = time.time()
    lines = [_HEADER, *(_cells(folder, one, now) for one in listed)]
    if sys.stdout.isatty():
        lines = with_short_commands(lines, shutil.get_terminal_size().columns)
    print_table(lines, [_STYLES[one.state] for one in listed])
    return SOUND


def with_short_commands(lines: list[list[str]], width: int) -> list[list[str]]:
    """The lines with commands that are cut so that they fit, and the experiments next to them if
    that leaves enough."""
    *widths, command, experiment = (
        max(map(width_of, column)) for column in zip(*lines, strict=True)
    )
    room = width - sum(widths) - 2 * len(widths)
    if room - experiment - 2 >= min(command, _ENOUGH):
        room -= experiment + 2
    return [[*rest, cut(words, max(1, room)), last] for *rest, words, last in lines]


def _cells(folder: QueueFolder, one: ListedJob, now: float) -> list[str]:
    job, last = one.job, one.job.last
    code = "" if last is None or last.exit_code is None else str(last.exit_code)
    paths = _experiments(folder, job)
    return [
        str(job.id),
        printable(job.name),
        one.state.value,
        f"{duration(max(0.0, now - job.since(one.state)))} ago",
        code if one.state is not State.RUNNING else "",
        printable(_words(job)),
        printable(os.path.basename(paths[-1])) if paths else "",
    ]


def _plain(folder: QueueFolder, one: ListedJob) -> dict[str, Any]:
    job, last = one.job, one.job.last
    return {
        "id": job.id,
        "name": job.name,
        "state": one.state.value,
        "since": job.since(one.state),
        "command": list(job.command),
        "directory": job.directory,
        "cpus": job.cpus,
        "gpus": job.gpus,
        "added_at": job.added_at,
        "starts": len(job.attempts),
        "exit_code": None if last is None else last.exit_code,
        "last_lines": "" if last is None else last.last_lines,
        "experiments": _experiments(folder, job),
        "stdout": str(folder.file(job.id, STDOUT)),
        "stderr": str(folder.file(job.id, STDERR)),
    }


def _experiments(folder: QueueFolder, job: Job) -> list[str]:
    found = JobExperiments(folder.file(job.id, EXPERIMENTS)).read()
    return list(dict.fromkeys(one.path for one in found))


def _change(given: argparse.Namespace, jobs: list[Job], what: str) -> int:
    lines = (f"job {job.id}: {job.name} is {what}" for job in jobs)
    return answer(given, {"ids": [job.id for job in jobs]}, *lines)


def _logs(given: argparse.Namespace, folder: QueueFolder) -> int:
    job = folder.known(given.id)
    path = folder.file(job.id, STDERR if given.stderr else STDOUT)
    text = path.read_bytes() if path.exists() else b""
    if given.tail is not None:
        text = b"".join(text.splitlines(keepends=True)[-given.tail :] if given.tail else [])
    if given.json:
        say_json({"id": job.id, "path": str(path), "text": text.decode(errors="replace")})
    else:
        sys.stdout.buffer.write(text)
    return SOUND


def _run(given: argparse.Namespace, folder: QueueFolder) -> int:
    counts: Counter[str] = Counter()

    def tell(happened: Happened) -> None:
        counts[happened.what] += 1
        if not given.json:
            for line in _lines(happened):
                say(line)
            sys.stdout.flush()

    runner = QueueRunner(
        folder, most=given.jobs, forever=given.forever, environ=os.environ, tell=tell
    )
    adopt_orphans()  # of guards that are killed
    was_interrupted = runner.run()
    several = ("done", "failed", "interrupted")
    plain = {"queue": str(folder.path), **{name: counts[name] for name in several}}
    ended = ", ".join(f"{counts[name]} {name}" for name in several if counts[name])
    answer(given, plain, ended or f"No job is due in {folder.path}.")
    if was_interrupted:
        return INTERRUPTED
    return WRONG if counts["failed"] or counts["cannot start"] else SOUND


def _lines(happened: Happened) -> list[str]:
    """The lines that a runner prints about a job."""
    job, last = happened.job, happened.job.last
    named = f"job {job.id}: {job.name}"
    if happened.what == "started":
        return [f"{named} starts: {_words(job)}"]
    if happened.what == "cannot start" or last is None:
        return [f"{named} cannot start: {happened.why}"]
    took = duration(max(0.0, (last.ended_at or 0) - last.began_at))
    if happened.what == "done":
        return [f"{named} is done after {took}"]
    if happened.what == "interrupted":
        later = "holdfast queue run" if job.due else f"holdfast queue retry {job.id}"
        return [f"{named} is interrupted after {took}. {later} continues it"]
    failed = f"{named} has failed with exit code {last.exit_code} after {took}"
    if not last.last_lines:
        return [f"{failed}. It has printed nothing"]
    stream = "" if last.of_stdout else "--stderr "
    lines = [f"  {line}" for line in last.last_lines.splitlines()]
    return [f"{failed}. Its last lines (all: holdfast queue logs {stream}{job.id}):", *lines]


def _words(job: Job) -> str:
    """The command as the user has written it."""
    words = list(job.command)
    if words[:4] == [sys.executable, "-m", "holdfast", "run"]:
        words[:3] = ["holdfast"]
    elif words[0] == sys.executable:
        words[0] = "python"
    return shlex.join(words)
