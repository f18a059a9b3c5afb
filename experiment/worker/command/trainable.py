"""`tune.CommandTrainable`: a trainable whose trials run a command of any language."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

from holdfast.described import Construction, Described
from holdfast.experiment.worker.command.attempt import run_command
from holdfast.experiment.worker.command.protocol import Extractor
from holdfast.experiment.worker.command.words import (
    PASSES_PARAMETERS,
    check_words,
    misspelled,
    placeholders,
    unused,
)
from holdfast.experiment.worker.session import current
from holdfast.plain_numbers import is_number
from holdfast.trial.errors import InvalidConfig, require
from holdfast.trial.resources import PlacementGroupFactory, request

# A file of the command with more bytes counts as unchanged.
_MOST_CODE = 1 << 20
_DEFAULT = ("${program}", "${args}")
_DEFAULT_OF_PYTHON = ("${interpreter}", "${program}", "${args}")


class CommandTrainable(Described):
    """A trainable whose trials run a command, which reports by lines `holdfast: loss=0.3`.

    `command`: its words, or text that is split as a shell would; no shell runs it. `${args}` is
    the parameters as `--lr=0.1`, `${args_no_hyphens}` as `lr=0.1`, `{lr}` one of them; the other
    macros are in docs/sweep.md. Without a command, `program` runs with `${args}`, a .py file with
    Python. `here` (default: the current directory) is the folder of relative paths: of `program`,
    of `cwd`, and of the first word of the command that names a file there. `cwd`: where the
    command runs; by default in the trial's folder. `name`: of the trainable, in trials' names.

    `env` adds environment variables; they are stored with the experiment, so pass no secrets.
    `metrics` maps metrics to regular expressions with one group, for a command that cannot report;
    a row is reported when each was found in its stdout. `strict`: a malformed report fails the
    trial, instead of a warning. `must_report`: so does an end without any report. `grace_s`:
    seconds from SIGTERM to SIGKILL when the trial is stopped. `resources` as for `with_resources`.

    Raises InvalidConfig.
    """

    needs_trust: ClassVar[str] = "runs a command"

    def __init__(
        self,
        command: str | Sequence[str] | None = None,
        *,
        program: str | None = None,
        name: str | None = None,
        here: str | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        metrics: Mapping[str, str] | None = None,
        strict: bool = False,
        must_report: bool = False,
        grace_s: float = 5.0,
        resources: Mapping[str, float] | PlacementGroupFactory | None = None,
    ) -> None:
        self.here = os.path.abspath(here or os.getcwd())
        words = _split(command, program)
        self.program = None if program is None else _program(program, words, self.here)
        self.words = tuple(_located(words, self.here))
        _check_executable(words, program, self.here)
        check_words(self.words, self.program)
        self.cwd = None if cwd is None else _folder(cwd, self.here)
        self.env: Mapping[str, str] = _checked_texts("env", env)
        self.metrics: Mapping[str, str] = _checked_texts("metrics", metrics)
        Extractor(self.metrics)
        require(
            is_number(grace_s) and 0 <= grace_s <= 3600,
            f"grace_s must be a number of seconds from 0 to 3600, not {grace_s!r:.100}",
        )
        self.strict, self.must_report, self.grace_s = strict, must_report, float(grace_s)
        self.__name__ = name or _name_of(self.program, self.words)
        if resources is not None:
            self.holdfast_resources = request(resources)

    def construction(self) -> Construction:
        """With the paths as they were found: a worker or a restore may run in another folder."""
        found = {"command": list(self.words), "program": self.program, "cwd": self.cwd}
        return super().construction().with_arguments(here=self.here, **found)

    def holdfast_code(self) -> Iterator[bytes]:
        """What decides what the command does: itself, and the files below `here` that it names."""
        metrics = [dict(self.metrics), self.strict, self.must_report]
        told = [self.words, self.program, self.cwd, dict(self.env), metrics]
        yield json.dumps(told, sort_keys=True).encode()
        named = {self.program or "", *self.words}
        for path in sorted(path for path in named if path.startswith(f"{self.here}{os.sep}")):
            with suppress(OSError):
                if os.path.isfile(path) and os.path.getsize(path) <= _MOST_CODE:
                    yield Path(path).read_bytes()

    def __call__(self, config: dict[str, Any]) -> None:
        """Run the command with this config, in a trial, until it ends."""
        run_command(self, config, current("a command"))

    def notes(self, names: Sequence[str]) -> list[str]:
        """What may be a mistake in a command for parameters of these names. Raises InvalidConfig
        for a placeholder that resembles one."""
        macros, written = placeholders(self.words)
        notes = [*misspelled(self.words, names), *unused(self.words, names)]
        code = b"".join(self.holdfast_code())
        if b"wandb.log" in code and b"holdfast:" not in code and not self.metrics:
            notes.append(
                "wandb.log is not a report: print a line such as holdfast: loss=0.3, too, or let "
                "`metrics` find numbers in what the script prints"
            )
        if not (written.intersection(names) or macros & PASSES_PARAMETERS):
            notes.append(
                "the command has no placeholder such as ${args} or {lr}: it must read its "
                "parameters from the file $HOLDFAST_CONFIG"
            )
        return notes


def _split(command: object, program: str | None) -> list[str]:
    if command is None:
        require(program is not None, "a command or a program is needed")
        is_python = program is not None and program.endswith(".py")
        return list(_DEFAULT_OF_PYTHON if is_python else _DEFAULT)
    if isinstance(command, str):
        try:
            words: Any = shlex.split(command)
        except ValueError as error:
            raise InvalidConfig(f"command: {command!r:.200}: {error}") from error
    else:
        words = command
    is_list = isinstance(words, Sequence) and bool(words)
    require(
        is_list and all(isinstance(word, str) and "\0" not in word for word in words),
        f"command must be text, or a list of words that are text, not {command!r:.200}",
    )
    return list(words)


def _program(program: str, words: Sequence[str], here: str) -> str:
    path = os.path.normpath(os.path.join(here, os.path.expanduser(program)))
    # Nodes have their own files: the attempt says what an absolute path lacks there.
    if os.path.isabs(program) or os.path.isfile(path):
        return path
    is_module = ("-m", "${program}") in pairwise(words)
    if is_module or ("/" not in program and shutil.which(program)):
        return program
    elsewhere = os.path.abspath(program)
    hint = f" It is in {os.getcwd()}: write {elsewhere}" if os.path.isfile(elsewhere) else ""
    raise InvalidConfig(f"the program {program!r} is not a file in {here}.{hint}")


def _check_executable(words: list[str], program: str | None, here: str) -> None:
    """Refuse a file in `here` that the command begins with, and that cannot be run."""
    first = program if words[0] == "${program}" else words[0]
    # An absolute path is that of a restore, too, which may only read.
    if first is None or ("/" not in first and first != program) or os.path.isabs(first):
        return
    path = os.path.normpath(os.path.join(here, first))
    if os.path.isfile(path) and not os.access(path, os.X_OK):
        instead = " ".join(["sh", os.path.relpath(path, here), *words[1:]])
        raise InvalidConfig(
            f"{path} is not executable: chmod +x {path}, or use the command: {instead}"
        )


def _located(words: list[str], here: str) -> list[str]:
    """The words, with an absolute path for the first that names a file in `here`."""
    for at, word in enumerate(words):
        path = os.path.normpath(os.path.join(here, word))
        # `python` is looked up on the PATH, even if a file has this name.
        is_path = "/" in word if at == 0 else not word.startswith("-")
        if is_path and "{" not in word and os.path.isfile(path):
            if at == 0 and os.path.isabs(word):
                continue  # an interpreter, perhaps
            return [*words[:at], path, *words[at + 1 :]]
    return words


def _folder(cwd: str, here: str) -> str:
    path = os.path.normpath(os.path.join(here, os.path.expanduser(cwd)))
    require(os.path.isabs(cwd) or os.path.isdir(path), f"cwd: {path} is not a folder")
    return path


def _checked_texts(name: str, given: Mapping[str, str] | None) -> dict[str, str]:
    texts = dict(given or {})
    for key, value in texts.items():
        require(
            isinstance(key, str) and isinstance(value, str) and key != "",
            f"{name}: {key!r:.60} must be text, not {value!r:.60}",
        )
    return texts


def _name_of(program: str | None, words: Sequence[str]) -> str:
    """The stem of the script: of the program, else of the first absolute path, else of the first
    word."""
    paths = [program, *(word for word in words[1:] if os.path.isabs(word)), words[0]]
    first = next(path for path in paths if path)
    stem = os.path.splitext(os.path.basename(first))[0]
    return "".join(sign if sign.isalnum() or sign in "-_" else "_" for sign in stem) or "command"
