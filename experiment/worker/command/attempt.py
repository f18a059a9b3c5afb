"""One attempt at a trial that runs a command: reports what its lines say."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Protocol

from holdfast.experiment.worker.advice import path_in
from holdfast.experiment.worker.command.environment import (
    CHECKPOINTS,
    CONFIG,
    WANDB_CONFIG,
    for_words,
    is_torchrun,
    python_of,
    variables,
)
from holdfast.experiment.worker.command.errors import CommandFailed
from holdfast.experiment.worker.command.process import CommandProcess
from holdfast.experiment.worker.command.protocol import (
    LONGEST_LINE,
    Extractor,
    Line,
    Lines,
    Malformed,
    Ranks,
    Report,
    asks_for_answer,
    doubts,
    may_report,
    report_of,
    reports,
    seems_mixed,
    visible,
)
from holdfast.experiment.worker.command.words import Facts, words_of, yaml_of
from holdfast.experiment.worker.session import Session
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.syncer.checkpoint.staging import is_inside
from holdfast.trees import try_to_delete
from holdfast.trial.errors import InvalidMetrics

_UNBUFFERED = "PYTHONUNBUFFERED"
_NEXT_LINE = re.compile(rb"[^\n]*\n|[^\n]+")
_ERROR_OF_ARGPARSE = re.compile(r"\S+: error: ")
_LAST_LINES = 20
_SHOWN_LINE = 500
_SHOWN_COMMAND = 300


class CommandSettings(Protocol):
    """What an attempt needs of `CommandTrainable`."""

    words: tuple[str, ...]
    program: str | None
    here: str
    cwd: str | None
    env: Mapping[str, str]
    metrics: Mapping[str, str]
    strict: bool
    must_report: bool
    grace_s: float


def run_command(settings: CommandSettings, config: Mapping[str, Any], session: Session) -> None:
    """Run the command to its end. Raises CommandFailed; TrialStopped when the trial is over."""
    folder = session.staging_directory()
    config_file = folder / CONFIG
    config_file.write_text(json.dumps(config, default=str))
    # With PYTHONUNBUFFERED, which images often set, one print() is several writes, and lines of
    # processes mix.
    inherited = {name: value for name, value in os.environ.items() if name != _UNBUFFERED}
    environ = {**inherited, **settings.env}
    words = words_of(
        settings.words,
        config,
        Facts(
            program=settings.program,
            here=settings.here,
            config_file=str(config_file),
            interpreter=python_of(environ),
            environ=environ,
        ),
    )
    wandb = {name: {"value": value} for name, value in config.items()}
    (folder / WANDB_CONFIG).write_text(yaml_of(wandb), encoding="utf-8")
    environ = for_words(words, environ, settings.here, folder)
    (folder / CHECKPOINTS).mkdir()
    with ExitStack() as stack:
        stack.callback(try_to_delete, folder)
        resumed = stack.enter_context(ExitStack())
        start = session.checkpoint()
        # An open checkpoint is not removed: the command may read it until its own first one.
        source = "" if start is None else resumed.enter_context(start.as_directory())
        environ |= variables(session, folder, source)
        with CommandProcess(words, cwd=settings.cwd or os.getcwd(), environ=environ) as process:
            attempt = _Attempt(settings, session, process, folder, resumed)
            attempt.run()


class _Attempt:
    """Reads the output of a command, and reports for it."""

    def __init__(
        self,
        settings: CommandSettings,
        session: Session,
        process: CommandProcess,
        folder: Path,
        resumed: ExitStack,
    ) -> None:
        self._settings = settings
        self._session = session
        self._process = process
        self._checkpoints = folder / CHECKPOINTS
        self._resumed = resumed
        self._extractor = Extractor(settings.metrics)
        self._lines = {name: Lines() for name in ("stdout", "stderr", "report")}
        # The part of the incomplete line of stdout that is not written yet.
        self._held = b""
        self._errors: deque[str] = deque(maxlen=_LAST_LINES)
        # Checkpoints that were reported without waiting: the command may have begun the next one
        # while this one was read.
        self._named: set[str] = set()
        self._rows = 0
        self._malformed = ""
        self._began = self._first_row = time.monotonic()
        self._ranks = Ranks() if is_torchrun(process.words) else None
        self._is_ending = False

    def run(self) -> None:
        process, grace_s = self._process, self._settings.grace_s
        try:
            self._take(process.output())
            if process.is_held:  # by what it has left in the background
                self._take(process.end(grace_s))
            self._take_unended()
        except BaseException:
            # The trial is over. The command may still print; its rows come too late.
            self._is_ending = True
            self._take(process.end(grace_s))
            self._take_unended()
            raise
        self._conclude(process.status())

    def _take(self, pieces: Iterable[tuple[str, bytes]]) -> None:
        for stream, piece in pieces:
            match stream:
                case "stdout":
                    piece = piece if self._ranks is None else self._ranks.feed(piece)
                    for part in _NEXT_LINE.findall(piece):
                        self._take_stdout(part)
                case "stderr":
                    _write(sys.stderr, piece)
                    self._take_lines(stream, self._lines[stream].feed(piece))
                case "report":
                    self._take_lines(stream, self._lines[stream].feed(piece))
                case _:
                    self._on_signal()

    def _take_stdout(self, part: bytes) -> None:
        """Write at most one line. A line that reports is kept out of the terminal: the trial's
        file has it. So a line is held back as long as it may become one."""
        self._held += part
        lines = list(self._lines["stdout"].feed(part))
        if lines or not may_report(self._lines["stdout"].rest) or len(self._held) > LONGEST_LINE:
            is_report = any(map(reports, lines))
            _write(sys.stdout, self._held, only_file=is_report and self._session.job.capture)
            self._held = b""
        self._take_lines("stdout", lines)

    def _take_unended(self) -> None:
        """Take last lines that have no end."""
        for part in _NEXT_LINE.findall(self._ranks.end() if self._ranks else b""):
            self._take_stdout(part)
        _write(sys.stdout, self._held)
        self._held = b""
        for stream, lines in self._lines.items():
            self._take_lines(stream, lines.end())

    def _take_lines(self, stream: str, lines: Iterable[Line]) -> None:
        for line in lines:
            if stream == "stderr":
                self._errors.append(visible(line.text)[:_SHOWN_LINE])
            elif stream == "report" or reports(line):
                self._take_report(line)
            elif (row := self._extractor.take(line)) is not None:
                self._report(Report(metrics=row))
            elif seems_mixed(line):
                self._session.unread += 1

    def _take_report(self, line: Line) -> None:
        if not visible(line.text):
            return
        try:
            self._report(report_of(line))
        except (Malformed, InvalidMetrics) as error:
            self._session.unread += 1
            if self._settings.strict:
                raise CommandFailed(f"a malformed report: {error}") from None
            if asks_for_answer(line):
                self._process.answer("refused")
            if not self._malformed:
                self._malformed = str(error)
                print(f"holdfast: not reported: {error}", file=sys.stderr)

    def _report(self, report: Report) -> None:
        if self._is_ending:
            return
        checkpoint = report.checkpoint and self._checkpoint(report)
        if not checkpoint:
            self._session.report(report.metrics)
        else:
            self._session.report(report.metrics, Checkpoint.from_directory(checkpoint))
            self._resumed.close()
            self._checkpoints.mkdir(exist_ok=True)  # it may have been the checkpoint itself
        self._rows += 1
        self._first_row = self._first_row if self._rows > 1 else time.monotonic()
        if report.wants_answer:
            self._process.answer("ok")

    def _checkpoint(self, report: Report) -> str:
        """The folder to report; a file gets one of its own. Raises CommandFailed."""
        named = os.path.normpath(report.checkpoint or "")
        path = self._checkpoints / named
        if Path(os.path.realpath(path)) in Path(os.path.realpath(self._checkpoints)).parents:
            raise CommandFailed(
                f"the checkpoint {named!r:.300} is not a folder of its own: it holds "
                f"$HOLDFAST_CHECKPOINT_DIR. Write it into a folder in there, and report its name"
            )
        if named in self._named:
            raise CommandFailed(
                f"the checkpoint {named!r:.300} was reported twice, and the command may have "
                f"changed it before it was stored. Give each checkpoint a new name, or add ack to "
                f"the report and wait for the answer in $HOLDFAST_ACK"
            )
        if not report.wants_answer:
            self._named.add(named)
        if path.is_dir():
            return str(path)
        if not path.is_file():
            raise CommandFailed(
                f"the checkpoint {named!r:.300} does not exist. Its path is relative to "
                f"$HOLDFAST_CHECKPOINT_DIR"
            )
        folder = self._session.staging_directory()
        target = folder / path.name
        if is_inside(path, self._checkpoints):
            with suppress(OSError):  # it may be mounted there
                os.rename(path, target)
        if not target.exists():
            shutil.copy2(path, target)
        return str(folder)

    def _on_signal(self) -> None:
        if self._session.is_preempted and not self._is_ending:
            # The command can save itself: its report with a checkpoint ends the attempt.
            self._process.terminate()

    def _warn(self) -> None:
        """Say what the rows do not show."""
        first_s, ran_s = (t - self._began for t in (self._first_row, time.monotonic()))
        for text in doubts(self._session.unread, first_s, ran_s, self._rows):
            print(f"holdfast: {text}", file=sys.stderr)

    def _conclude(self, status: int) -> None:
        self._warn()
        if self._session.is_preempted:
            self._session.stop()
        if status:
            raise CommandFailed(self._failure(status))
        if self._rows or self._session.iteration:
            return  # it may have resumed after its last row
        missing = self._extractor.missing
        found_none = f" Not found in its stdout: {', '.join(missing)}." if missing else ""
        hint = (
            f"It has printed {self._malformed}"
            if self._malformed
            else "A line such as holdfast: loss=0.3 on its stdout is a report, and `metrics` in a "
            "sweep file, or metrics={...}, finds numbers in what it prints anyway: "
            "{loss: 'loss: ([0-9.]+)'}"
        )
        # The command comes last: the screen shows the beginning of an error.
        silence = f"the command ended and reported nothing.{found_none} {hint}. {self._command}"
        if self._settings.must_report:
            raise CommandFailed(silence)
        print(f"holdfast: {silence}", file=sys.stderr)

    def _failure(self, status: int) -> str:
        """First the last line of stderr: that of a traceback says why."""
        how = f"exit code {status}" if status > 0 else _signal_name(-status)
        lines = [line for line in self._errors if line]
        if not lines:
            return f"{how}: {self._command}"
        advice = self._advice(lines[-1])
        why = f"{lines[-1].strip().rstrip('.')}.{advice and f' {advice}.'}"
        return "\n".join([f"{how}: {why}", f"The command: {self._command}", *lines])

    def _advice(self, line: str) -> str:
        settings = self._settings
        said = _ERROR_OF_ARGPARSE.sub("", line, count=1)
        is_of_words = said != line and "No such file" not in said
        found = "" if settings.cwd or is_of_words else path_in(said, settings.here)
        return found and f"A command runs in its trial's folder: pass {found}, or set cwd"

    @property
    def _command(self) -> str:
        text = shlex.join(self._process.words)
        return text if len(text) <= _SHOWN_COMMAND else f"{text[:_SHOWN_COMMAND]}..."


def _signal_name(signum: int) -> str:
    try:
        name = signal.Signals(signum).name
    except ValueError:
        name = f"signal {signum}"
    return f"{name} (possibly out of memory)" if signum == signal.SIGKILL else name


def _write(stream: Any, data: bytes, *, only_file: bool = False) -> None:
    """Write to sys.stdout or sys.stderr as they are: with an echo in the terminal, unless
    `only_file`."""
    if only_file:
        stream.flush()
        while data:
            data = data[os.write(stream.fileno(), data) :]
    elif data and (buffer := getattr(stream, "buffer", None)) is not None:
        buffer.write(data)
        buffer.flush()
    elif data:  # a notebook's
        stream.write(data.decode(errors="replace"))
