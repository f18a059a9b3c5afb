"""The lock of an experiment, as every command takes it."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

import pytest

from holdfast.experiment.folder.contents import LeadsElsewhere
from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.records.opened import locked
from holdfast.syncer.uploader.lock import Locked


def test_the_lock_waits_for_a_process_of_a_run_that_was_killed(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    service = os.open(layout.lock, os.O_RDWR | os.O_CREAT)
    fcntl.flock(service, fcntl.LOCK_EX)
    with pytest.raises(Locked), locked(layout, deadline_s=0.0):
        pass
    ended: list[bool] = []

    def end() -> None:
        ended.append(True)
        os.close(service)

    ends = threading.Timer(0.1, end)
    ends.start()
    with locked(layout):
        assert ended
    ends.join()


def test_no_command_works_in_a_folder_with_a_link_in_place_of_a_file(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.tuner.symlink_to("/etc/hostname")
    with pytest.raises(LeadsElsewhere, match=r"tuner\.pkl is a link"), locked(layout):
        pass
    with pytest.raises(LeadsElsewhere), locked(layout):  # the refusal has released the lock
        pass
