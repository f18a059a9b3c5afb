"""The folder on the import path that says what `import ray` means."""

from __future__ import annotations

import os
import sys

import pytest

from holdfast.compat import ray_path


def test_the_scripts_own_folder_stays_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["/script", "/site-packages"])
    ray_path.activate()
    ray_path.activate()
    assert sys.path == ["/script", ray_path.FOLDER, "/site-packages"]
    assert ray_path.is_active()


def test_a_process_that_uses_ray_itself_forgets_the_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", ["/script", ray_path.FOLDER, "/site-packages"])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([ray_path.FOLDER, "/mine"]))
    ray_path.deactivate()
    assert sys.path == ["/script", "/site-packages"]
    assert os.environ["PYTHONPATH"] == "/mine"
    assert not ray_path.is_active()


def test_pythonpath_keeps_what_was_in_it() -> None:
    environ = {"PYTHONPATH": "/mine", "HOME": "/home"}
    made = ray_path.added_to(environ)
    assert made == {"PYTHONPATH": f"{ray_path.FOLDER}{os.pathsep}/mine", "HOME": "/home"}
    assert ray_path.added_to(made) == made
    assert ray_path.without(made) == environ
    assert ray_path.without({"HOME": "/home"}) == {"HOME": "/home"}
