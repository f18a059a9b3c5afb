"""The command as a test calls it, in this process, a terminal or a shell; and a stopped run."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import main
from holdfast.scheduler.events import EndOrdered, Exited
from tests.rig.runs.recorded import RecordedExperiment


def stamps(root: Path) -> dict[str, tuple[int, int]]:
    return {str(p): (p.lstat().st_mtime_ns, p.lstat().st_size) for p in root.rglob("*")}


def told(capsys: pytest.CaptureFixture[str], *words: str | Path, code: int = 0) -> str:
    assert main([*map(str, words)]) == code
    return capsys.readouterr().out


def parsed(capsys: pytest.CaptureFixture[str], *words: str | Path) -> Any:
    return json.loads(told(capsys, *words, "--json"))


def stopped(root: Path) -> None:
    """An experiment of five trials after Ctrl-C: of three with one cause two failed, and one is
    unfinished."""
    made = RecordedExperiment(root, options={"trials": 5}, num_samples=5)
    for number in range(3):
        trial_id = made.begin({"n": number})
        if number < 2:
            made.fail(trial_id, message=f"loss is {number}")
    made.add(EndOrdered(reason="interrupt"))
    made.add(Exited(trial_id=trial_id, attempt=1, cause="ended"))
    made.ends()


class Terminal(io.StringIO):
    """What a user types, in a terminal."""

    def isatty(self) -> bool:
        return True


def in_terminal(words: Sequence[str], columns: int) -> str:
    """The command's output to a terminal with this many columns, without colours."""
    ours, theirs = pty.openpty()
    environ = {**os.environ, "COLUMNS": str(columns), "LINES": "40", "NO_COLOR": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast", *words], stdout=theirs, env=environ
    ) as process:
        os.close(theirs)
        parts = []
        while part := _read(ours):
            parts.append(part)
        process.wait()
    os.close(ours)
    return b"".join(parts).decode().replace("\r", "")


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:  # Linux says so when the last writer has closed a terminal
        return b""


def completed(line: str, where: Path) -> list[str]:
    """The answer to the shell at the end of a line."""
    environ = {
        **os.environ,
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(where / "answer"),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    command = [sys.executable, "-m", "holdfast"]
    subprocess.run(command, cwd=where, env=environ, check=True)
    return (where / "answer").read_text().split("\n")
