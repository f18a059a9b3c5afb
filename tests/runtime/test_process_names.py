"""The names of processes, as the kernel shows them."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from holdfast.runtime import process_control

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has names to set"),
]

SCRIPT = """
import os, sys
from pathlib import Path
from holdfast.runtime.process_control import Title
Title(*sys.argv[1:]).show()
pid = os.fork()
if pid:
    os.waitpid(pid, 0)
else:
    Title("child", "").show()  # which has the same addresses, and does not rename its parent
    os._exit(0)
read = lambda name: Path("/proc/self", name).read_text()
print(ascii([read("comm"), read("cmdline"), sys.argv[1]]))
"""


def names(kind: str, of: str, short: str) -> list[str]:
    command = [sys.executable, "-c", SCRIPT, kind, of, short]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: list[str] = ast.literal_eval(told)
    return found


@pytest.mark.parametrize(
    ("given", "name", "title"),
    [
        (("trial 46f40_00007", "digits", "00007"), "holdfast:00007", "trial 46f40_00007 digits"),
        (("uploader", "", ""), "holdfast:upload", "uploader"),
        (("uploader", "two\nlines\x1b[1m", "up"), "holdfast:up", "uploader two\\nlines\\x1b[1m"),
    ],
)
def test_a_process_is_shown_by_its_title(
    given: tuple[str, str, str], name: str, title: str
) -> None:
    assert names(*given) == [f"{name}\n", f"holdfast: {title}\0", given[0]]


def test_a_title_longer_than_the_command_line_is_cut_off_and_the_environment_stays() -> None:
    code = (
        "from holdfast.runtime.process_control import Title; from pathlib import Path; "
        "read = lambda name: Path('/proc/self', name).read_bytes(); "
        "environ, room = read('environ'), len(read('cmdline')); "
        "Title('trial', 'y' * 5000).show(); "
        "print(read('environ') == environ, len(read('cmdline')) == room - 1, read('cmdline')[:20])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "True True b'holdfast: trial yyyy'\n", told


def test_where_the_kernel_refuses_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(process_control, "_write", refuse)
    process_control.Title("trial", "digits").show()
