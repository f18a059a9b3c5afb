"""Commands that messages suggest can be pasted."""

from __future__ import annotations

import shlex
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

from holdfast.experiment.folder.shell import holdfast_command, module_path, resume_command


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The `__main__` of a notebook: without a file."""
    made = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", made)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return made


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `holdfast` next to this Python, and the only one that a shell finds."""
    folder = tmp_path / "venv" / "bin"
    folder.mkdir(parents=True)
    command = folder / "holdfast"
    command.touch(0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    return folder


def test_it_is_quoted_and_has_no_credentials(main: ModuleType, on_path: Path) -> None:
    assert resume_command("/a b/run") == "holdfast resume '/a b/run'"
    uri = "s3://bucket/run?endpoint_override=x&secret_key=hidden7"
    words = shlex.split(holdfast_command("doctor", "sync", uri))
    assert words[:3] == ["holdfast", "doctor", "sync"]
    assert "hidden7" not in words[3]
    assert resume_command("/run", "--resume-errored") == "holdfast resume --resume-errored /run"


def test_the_command_of_another_environment_is_not_meant(
    main: ModuleType, on_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/other/bin/python")
    assert resume_command("/run") == "/other/bin/python -m holdfast resume /run"
    monkeypatch.setenv("PATH", "/nowhere")
    assert holdfast_command("ls") == "/other/bin/python -m holdfast ls"


def test_an_experiment_records_where_its_script_finds_modules(
    main: ModuleType, on_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert module_path() == ""
    code = tmp_path / "my code"
    main.__file__ = str(code / "train.py")
    assert module_path() == str(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "/more::lib")
    assert module_path() == f"{code}:/more:{tmp_path}/lib"
    main.__file__ = str(code / "package" / "train.py")
    main.__spec__ = ModuleSpec("package.train", None)  # `python -m package.train`
    assert module_path() == f"{code}:/more:{tmp_path}/lib"
    main.__spec__ = ModuleSpec("holdfast.__main__", None)
    assert module_path() == f"/more:{tmp_path}/lib"


def test_the_command_itself_has_no_modules(
    main: ModuleType, on_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main.__file__ = str(on_path / "holdfast")
    assert module_path() == ""
    monkeypatch.setenv("PYTHONPATH", "/code")
    assert module_path() == "/code"
    assert resume_command("/run") == "holdfast resume /run"
