"""The folder of a run that fails before its first record goes, unless somebody has been there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from holdfast.api.fit import none_stays
from holdfast.experiment.folder.layout import Layout
from holdfast.syncer.journal.journal import Journal


def fail(layout: Layout, *, robbed: bool) -> None:
    with none_stays(layout):
        layout.root.mkdir()
        layout.tuner.write_bytes(b"objects")
        journal = Journal(layout.journal)
        if robbed:
            (segment,) = layout.journal.iterdir()
            shutil.move(segment, layout.root.parent)
        journal.abandon()
        raise RuntimeError("it fails")


def test_a_run_that_has_recorded_nothing_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        fail(Layout(tmp_path / "run"), robbed=False)
    assert list(tmp_path.iterdir()) == []


def test_the_objects_stay_for_a_journal_that_somebody_has_taken_away(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "run")
    with pytest.raises(RuntimeError):
        fail(layout, robbed=True)
    assert layout.tuner.read_bytes() == b"objects", "the journal may be put back, and restored"
