"""`tune.CommandTrainable`: a trainable whose trials run a command of any language.

The command leads a session of its own, so that a signal reaches what it started, too. The kernel
kills it with this process. What leaves its session is ended by the warm parent
(`runtime/orphans.py`).
"""

from __future__ import annotations

import json
import os
import re
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Final

from holdfast.described import Construction, Described
from holdfast.experiment.worker.command.protocol import (
    LONGEST_LINE,
    MARK,
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
from holdfast.experiment.worker.command.words import (
    PASSES_PARAMETERS,
    Facts,
    check_words,
    misspelled,
    placeholders,
    unused,
    words_of,
    yaml_of,
)
from holdfast.experiment.worker.failures import CommandFailed, CommandNotStarted, path_in
from holdfast.experiment.worker.session import Session, current
from holdfast.plain_numbers import is_number
from holdfast.runtime import process_control
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.syncer.checkpoint.staging import is_inside
from holdfast.trees import try_to_delete
from holdfast.trial.errors import InvalidConfig, InvalidMetrics, require
from holdfast.trial.resources import PlacementGroupFactory, request

REPORT_FILE: Final = "HOLDFAST_REPORT_FILE"
ACK: Final = "HOLDFAST_ACK"
_CHUNK_BYTES = 1 << 16
# A pipe of Linux holds 64 KiB, and at most 1 MiB unless root has raised that.
_MOST_LEFT_BYTES = 1 << 20
_EXITED = b"\0"
_LONGEST_WAIT_S = 3600.0
# How long the kernel may take to end a process after SIGKILL, for instance in a dead disk.
_KILLED_WITHIN_S = 60.0


class CommandProcess:
    """A command that runs. Use it as a context manager: at its end nothing of it is left."""

    def __init__(self, words: Sequence[str], *, cwd: str, environ: Mapping[str, str]) -> None:
        self.words = tuple(words)
        self._selector = selectors.DefaultSelector()
        self._fds: list[int] = []
        self._exited = threading.Event()
        self._signal_fd: int | None = None
        self._is_terminated = False
        report, reports_to = self._pipe()
        acks_from, self._acks = self._pipe()
        woken, self._wakes = self._pipe()
        for fd in (report, self._acks, woken, self._wakes):
            os.set_blocking(fd, False)
        process_control.load()
        parent = os.getpid()
        try:
            self._process = subprocess.Popen(
                self.words,
                cwd=cwd,
                env={**environ, REPORT_FILE: _path(reports_to), ACK: _path(acks_from)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                pass_fds=(reports_to, acks_from),
                preexec_fn=lambda: process_control.die_with_parent(parent),
            )
        except (OSError, ValueError) as error:
            self._close()
            raise CommandNotStarted(f"{error}: {shlex.join(self.words)}") from None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._streams = (self._process.stdout, self._process.stderr)
        for name, fd in (
            ("stdout", self._process.stdout.fileno()),
            ("stderr", self._process.stderr.fileno()),
            ("report", report),
            ("woken", woken),
        ):
            os.set_blocking(fd, False)
            self._selector.register(fd, selectors.EVENT_READ, name)
        self._open = {"stdout", "stderr"}
        self._waiter = threading.Thread(target=self._wait, name="holdfast-command", daemon=True)
        self._waiter.start()

    def __enter__(self) -> CommandProcess:
        if threading.current_thread() is threading.main_thread():
            self._signal_fd = signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)
        return self

    def __exit__(self, *_: object) -> None:
        if self._signal_fd is not None:
            signal.set_wakeup_fd(self._signal_fd)
        process_control.kill_group(self._process.pid)
        if self._exited.wait(_KILLED_WITHIN_S):
            self._process.wait(_KILLED_WITHIN_S)
            self._waiter.join(_KILLED_WITHIN_S)
        self._close()

    def output(self) -> Iterator[tuple[str, bytes]]:
        """Pieces of `stdout`, `stderr` and `report`, until the command has exited; ("signal", b"")
        after a signal to this process."""
        while not self._exited.is_set():
            yield from self._pieces(_LONGEST_WAIT_S)
        yield from self._left()

    def end(self, grace_s: float) -> Iterator[tuple[str, bytes]]:
        """Send SIGTERM, unless that was done, and SIGKILL after `grace_s`; pieces of its output
        meanwhile.

        The grace ends early when the command has exited and nothing else holds its output.
        """
        self.terminate()
        until = time.monotonic() + grace_s
        while (self._open or not self._exited.is_set()) and (left := until - time.monotonic()) > 0:
            yield from self._pieces(left)
        process_control.kill_group(self._process.pid)
        self._exited.wait(_KILLED_WITHIN_S)
        yield from self._left()

    @property
    def is_held(self) -> bool:
        """True while something that the command started has its stdout or stderr."""
        return bool(self._open)

    def terminate(self) -> None:
        """Send SIGTERM to the command and what it started in its session, once."""
        if not self._is_terminated:
            self._is_terminated = True
            process_control.kill_group(self._process.pid, signal.SIGTERM)

    def answer(self, text: str) -> None:
        """Write a line that the command reads from $HOLDFAST_ACK."""
        with suppress(BlockingIOError):  # it asked for thousands and reads none
            os.write(self._acks, f"{text}\n".encode())

    def status(self) -> int:
        """The exit status, negative for a signal. Call it after `output`.

        Raises subprocess.TimeoutExpired for a process that hangs in the kernel after SIGKILL.
        """
        return self._process.wait(_KILLED_WITHIN_S)

    def _pieces(self, within_s: float) -> Iterator[tuple[str, bytes]]:
        for key, _ in self._selector.select(within_s):
            piece = _read(key.fd)
            if key.data == "woken":
                if piece and piece.strip(_EXITED):
                    yield "signal", b""
            elif piece:
                yield key.data, piece
            elif piece is not None:
                self._selector.unregister(key.fd)
                self._open.discard(key.data)

    def _left(self) -> Iterator[tuple[str, bytes]]:
        """The rest of the pipes, without what others write there meanwhile."""
        for key in list(self._selector.get_map().values()):
            left = _MOST_LEFT_BYTES
            while key.data != "woken" and left > 0 and (piece := _read(key.fd)) is not None:
                if not piece:
                    self._selector.unregister(key.fd)
                    self._open.discard(key.data)
                    break
                left -= len(piece)
                yield key.data, piece

    def _wait(self) -> None:
        """Notice the exit without reaping: until then no other process gets this pid."""
        with suppress(ChildProcessError):
            if sys.platform == "linux":
                os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
            else:
                self._process.wait()
        self._exited.set()
        with suppress(BlockingIOError):  # it is full of signals, which wake, too
            os.write(self._wakes, _EXITED)

    def _pipe(self) -> tuple[int, int]:
        ends = os.pipe()
        self._fds += ends
        return ends

    def _close(self) -> None:
        self._selector.close()
        for stream in getattr(self, "_streams", ()):
            stream.close()
        while self._fds:
            os.close(self._fds.pop())


def _path(fd: int) -> str:
    """A path of this end of a pipe for the command, and on Linux for everything below it, whether
    it has inherited the descriptor or not."""
    return f"/proc/{os.getpid()}/fd/{fd}" if sys.platform == "linux" else f"/dev/fd/{fd}"


def _read(fd: int) -> bytes | None:
    """A piece; b"" at the end, None if there is none now."""
    try:
        return os.read(fd, _CHUNK_BYTES)
    except BlockingIOError:
        return None


CONFIG = "config.json"
# W&B's agent names such a file to its trials, and wandb.init() takes its config from there.
WANDB_CONFIG = "wandb.yaml"
CHECKPOINTS = "checkpoints"


def is_torchrun(words: Sequence[str]) -> bool:
    """True for a command that starts several processes which print."""
    return any("torchrun" in word or "torch.distributed" in word for word in words)


def for_words(
    words: Sequence[str], environ: Mapping[str, str], here: str, folder: Path
) -> dict[str, str]:
    """The environment in which `-m` finds a module below `here`, and torchrun marks what its ranks
    print, for `Ranks`. These have unbuffered output; without it, its own would come late."""
    made = dict(environ)
    if any(_is_module(here, *both) for both in pairwise(words)):
        made["PYTHONPATH"] = os.pathsep.join(filter(None, [environ.get("PYTHONPATH"), here]))
    if not is_torchrun(words):
        return made
    tee = {"PET_TEE": "1", "PET_LOG_DIR": str(folder), "PYTHONUNBUFFERED": "1"}
    return {**tee, "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": MARK, **made}


def python_of(environ: Mapping[str, str]) -> str:
    """The Python of scripts: the first on the PATH, else this one."""
    return "python" if shutil.which("python", path=environ.get("PATH")) else sys.executable


def _is_module(here: str, option: str, name: str) -> bool:
    """True for `-m` and a module below `here`."""
    path = os.path.join(here, *name.split("."))
    return option == "-m" and (os.path.isdir(path) or os.path.isfile(f"{path}.py"))


def variables(session: Session, folder: Path, source: str) -> dict[str, str]:
    assignment = session.assignment
    return {
        "HOLDFAST_CONFIG": str(folder / CONFIG),
        "WANDB_SWEEP_PARAM_PATH": str(folder / WANDB_CONFIG),
        "HOLDFAST_CHECKPOINT_DIR": str(folder / CHECKPOINTS),
        "HOLDFAST_RESUME_DIR": source,
        "HOLDFAST_ITERATION": str(session.iteration),
        "HOLDFAST_TRIAL_ID": assignment.trial_id,
        "HOLDFAST_TRIAL_NAME": assignment.trial_name,
        "HOLDFAST_TRIAL_DIR": session.folder,
        "HOLDFAST_ATTEMPT": str(assignment.attempt),
    }


_UNBUFFERED = "PYTHONUNBUFFERED"
_NEXT_LINE = re.compile(rb"[^\n]*\n|[^\n]+")
_ERROR_OF_ARGPARSE = re.compile(r"\S+: error: ")
_LAST_LINES = 20
_SHOWN_LINE = 500
_SHOWN_COMMAND = 300


def run_command(settings: CommandTrainable, config: Mapping[str, Any], session: Session) -> None:
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
        settings: CommandTrainable,
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
        """The content that decides what the command does: itself and the files that it names."""
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
        """Likely mistakes in a command for parameters of these names. Raises InvalidConfig
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
