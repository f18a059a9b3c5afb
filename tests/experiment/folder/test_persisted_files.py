"""Which files of an experiment belong in storage."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Literal, get_args

import pytest

from holdfast.experiment.folder.contents import uploader_settings
from holdfast.experiment.folder.layout import CONTROL, LOCK, Layout
from holdfast.syncer.artifacts.scan import Scope, scan

SCOPES: tuple[Scope, ...] = get_args(Literal["records", "artifacts"])


@pytest.mark.parametrize("scope", SCOPES)
def test_the_locks_and_the_socket_of_a_run_stay_here_and_nothing_is_said_about_them(
    tmp_path: Path, scope: Scope
) -> None:
    settings = uploader_settings(
        Layout(tmp_path),
        None,
        experiment_id="e",
        log_names=("stdout", "stderr"),
        artifacts=True,
        timeout_s=1.0,
    )
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / CONTROL))
    (tmp_path / LOCK).touch()
    (tmp_path / "nodes.json").touch()
    (tmp_path / "plot.png").touch()
    found = scan(settings, "", scope)
    assert (list(found.files), found.skipped) == (
        ["nodes.json" if scope == "records" else "plot.png"],
        {},
    )
