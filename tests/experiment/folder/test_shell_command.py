"""Commands that messages suggest can be pasted."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from types import ModuleType

import pytest

from holdfast.experiment.folder.shell_command import holdfast_command, resume_command


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


def test_a_script_in_another_folder_names_the_folder_of_its_modules(
    main: ModuleType, on_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = tmp_path / "my code"
    code.mkdir()
    (code / "train.py").touch()
    main.__file__ = str(code / "train.py")
    assert resume_command("/run") == "holdfast resume /run"  # it has no module
    (code / "model.py").touch()
    assert resume_command("/run") == f"PYTHONPATH='{code}' holdfast resume /run"
    monkeypatch.chdir(code)
    assert resume_command("/run") == "holdfast resume /run"
    model = ModuleType("model")
    model.__file__ = str(code / "model.py")
    monkeypatch.setitem(sys.modules, "model", model)  # tuner.pkl may only name its functions
    assert resume_command("/run") == f"PYTHONPATH='{code}' holdfast resume /run"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "/more")
    assert resume_command("/run") == f"PYTHONPATH='{code}:/more' holdfast resume /run"
    main.__spec__ = sys.__spec__  # `python -m train` finds its modules from here
    assert resume_command("/run") == "holdfast resume /run"


def test_the_command_itself_repeats_the_pythonpath_that_was_pasted(
    main: ModuleType, on_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main.__file__ = str(on_path / "holdfast")
    (on_path / "tool.py").touch()
    assert resume_command("/run") == "holdfast resume /run"
    monkeypatch.setenv("PYTHONPATH", "/code")
    assert resume_command("/run") == "PYTHONPATH=/code holdfast resume /run"
