"""Small functions for processes."""

import os
import signal
import subprocess
import sys

import pytest

from holdfast.runtime import process_control
from holdfast.runtime.interpreter import python_command
from holdfast.runtime.launcher import describe_code
from holdfast.syncer.files.durable import boot_id


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "exited with status 0"),
        (3, "exited with status 3"),
        (-15, "was killed by signal 15 (SIGTERM)"),
        (-9, "was killed by signal 9 (SIGKILL), possibly out of memory"),
        (-11, "was killed by signal 11 (SIGSEGV)"),
        (-35, "was killed by signal 35 (unknown)"),
        (
            -process_control.STOP,
            f"was killed by signal {process_control.STOP} (holdfast's order to stop)",
        ),
    ],
)
def test_an_exit_is_reported_in_words(code: int, words: str) -> None:
    assert describe_code(code) == words


@pytest.mark.parametrize("pid", [-1, 0, 1])
def test_no_group_of_another_process_is_killed(pid: int) -> None:
    with pytest.raises(ValueError, match="is not a worker's process group"):
        process_control.kill_group(pid, signal.SIGCONT)


@pytest.mark.process
def test_killing_a_group_that_is_gone_is_fine() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""], start_new_session=True)
    process.wait()
    process_control.kill_group(process.pid)


@pytest.mark.process
def test_a_fresh_interpreter_imports_what_this_one_does_and_gets_its_arguments() -> None:
    command = python_command("builtins:print", [])
    assert command[0] == sys.executable
    code = "import json, sys; print(json.dumps([sys.argv, sys.path]))"
    command = [*command[:-1], command[-1].replace("main()", code), "a", "b"]
    told = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/").stdout
    argv, path = __import__("json").loads(told)
    assert argv[1:] == ["a", "b"]
    assert path == [os.path.abspath(part or os.getcwd()) for part in sys.path]


@pytest.mark.process
def test_a_process_whose_parent_is_gone_already_ends_at_once() -> None:
    code = "from holdfast.runtime.process_control import *; die_with_parent(1); print('alive')"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (process.returncode, process.stdout) == (1, b"")


def test_the_boot_of_the_machine_has_a_name_that_stays() -> None:
    assert boot_id() == boot_id()
