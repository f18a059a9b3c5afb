"""A real run whose journal has lost its start: repaired from a snapshot, and continued."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.cli import main
from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.projector.projector import Projector, ProjectorSettings
from holdfast.experiment.records.snapshots import read_snapshot, snapshot_names
from holdfast.syncer.journal.journal import MAGIC, read, segment_name
from tests.rig.bench import Bench, epochs_of
from tests.rig.nightly import rest_nightly

pytestmark = pytest.mark.process


def _zero(journal: Path, start: int) -> None:
    """A lost block of the disk: 4 KiB, or everything before the snapshot's last record."""
    path = journal / segment_name(0)
    data = path.read_bytes()
    lost = min(4096, start)
    path.write_bytes(bytes(lost) + data[lost:])


def _lose_first(journal: Path, _: int) -> None:
    (journal / segment_name(0)).unlink()


def _lose_all(journal: Path, _: int) -> None:
    shutil.rmtree(journal)


def _split(journal: Path) -> None:
    """Two segments: the second begins after a tenth of the records."""
    path = journal / segment_name(0)
    ends = [end.offset for _, end in read(journal)]
    at, data = ends[len(ends) // 10], path.read_bytes()
    (journal / segment_name(1)).write_bytes(MAGIC + data[at:])
    path.write_bytes(data[:at])


@pytest.mark.parametrize(
    ("damage", "behind"),
    rest_nightly(1, [(_zero, 3), (_lose_first, 3), (_lose_all, 0)]),
    ids=["zero", "first", "all"],
)
def test_no_acknowledged_epoch_runs_again_and_each_row_stays(
    killed: Bench,
    damage: Callable[[Path, int], None],
    behind: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`behind`: the number of records after the one of the snapshot."""
    monkeypatch.setenv("HOME", str(killed.folder / "home"))
    layout = Layout(killed.root)
    if damage is _lose_first:
        _split(layout.journal)
    places = [end for _, end in read(layout.journal)]
    for name in snapshot_names(killed.root):
        (killed.root / name).unlink()
    projector = Projector(layout, ProjectorSettings(), boot="")
    projector.catch_up(places[-1 - behind])
    projector.snapshot()
    projector.catch_up()
    rows = {path: path.read_bytes() for path in killed.root.glob("*/result.json")}
    assert len(rows) == 2
    damage(layout.journal, read_snapshot(layout, snapshot_names(killed.root)[0]).last.record_start)
    refused = killed.restore()
    assert refused.ends() == 1
    assert main(["doctor", "repair", str(killed.root)]) == 0
    assert {path: path.read_bytes() for path in rows} == rows
    assert epochs_of(killed.restore().succeeds()) == [4, 4]
    assert main(["doctor", "verify", str(killed.root)]) == 0
    assert killed.problems(tensorboard=True) == []
    for path, data in rows.items():
        lines = path.read_bytes().splitlines()
        assert lines[: len(data.splitlines())] == data.splitlines()
