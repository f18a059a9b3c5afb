"""A real run whose journal has lost its start: repaired from a snapshot, and continued."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.cli import main
from holdfast.experiment.layout import Layout
from holdfast.experiment.scribe import Scribe, ScribeSettings
from holdfast.experiment.snapshots import read_snapshot, snapshot_names
from holdfast.syncer.journal import segment_name
from holdfast.testing.bench import Bench, results

pytestmark = pytest.mark.process


def _zero(journal: Path, end: int) -> None:
    """A block that the disk has lost: 4 KiB, or what there is of it before the snapshot."""
    path = journal / segment_name(0)
    data = path.read_bytes()
    lost = min(4096, end - 8)
    path.write_bytes(bytes(lost) + data[lost:])


def _lose_first(journal: Path, end: int) -> None:
    """Its records are in two segments, and the first is gone."""
    path = journal / segment_name(0)
    (journal / segment_name(1)).write_bytes(path.read_bytes()[:8] + path.read_bytes()[end:])
    path.unlink()


def _lose_all(journal: Path, _: int) -> None:
    shutil.rmtree(journal)


@pytest.mark.parametrize("damage", [_zero, _lose_first, _lose_all])
def test_no_acknowledged_epoch_runs_again_and_each_row_stays(
    killed: Bench,
    damage: Callable[[Path, int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", str(killed.folder / "home"))
    layout = Layout(killed.root)
    scribe = Scribe(layout, ScribeSettings(), boot="")
    scribe.catch_up()
    scribe.snapshot()
    rows = {path: path.read_bytes() for path in killed.root.glob("*/result.json")}
    assert len(rows) == 2
    end = read_snapshot(layout, snapshot_names(killed.root)[0]).position.offset
    damage(layout.journal, end)
    refused = killed.restore()
    assert refused.ends() == 1
    assert main(["doctor", "repair", str(killed.root)]) == 0
    assert {path: path.read_bytes() for path in rows} == rows
    restored = killed.restore().succeeds()
    assert [found["epoch"] for found in results(restored)] == [4, 4]
    for path, data in rows.items():
        assert path.read_bytes().startswith(data)
    assert main(["doctor", "verify", str(killed.root)]) == 0
    assert killed.problems(tensorboard=True) == []
