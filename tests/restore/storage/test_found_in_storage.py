"""A complete checkpoint in storage that no record names: a restore resumes from it."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.rig.bench import Bench, epochs_of, results
from tests.rig.nightly import rest_nightly

pytestmark = [pytest.mark.process, pytest.mark.rest]

FOUND = "is complete, although no record names it"


@contextmanager
def interrupted_at(bench: Bench, epoch: int, *, restores: bool) -> Iterator[None]:
    """Ctrl-C when both trials had reached this epoch: storage has everything."""
    gate = bench.gate(f"any-{epoch}")
    script = bench.restore() if restores else bench.start()
    script.wait_for(f"at 0 {epoch}")
    script.wait_for(f"at 1 {epoch}")
    script.signal(signal.SIGINT)
    assert script.ends() == -signal.SIGINT
    assert script.left() == []
    yield
    gate.open()


def epochs_run(bench: Bench) -> list[int]:
    return sorted(note["iteration"] for note in bench.notes() if note["what"] == "ran")


def forget_notes(bench: Bench) -> None:
    (bench.folder / "bench" / "notes").unlink()


def journal_put_back(root: Path, kept: Path) -> None:
    """Storage loses the end of the journal: its head is an earlier one again."""
    shutil.rmtree(root / "journal")
    shutil.copytree(kept / "journal", root / "journal")
    shutil.copy(kept / "head.json", root)


@pytest.fixture
def superseded(bench: Bench) -> Bench:
    """An experiment whose journal in storage names only checkpoints that were superseded and
    removed since.

    From now on it is restored on a machine without any of its files.
    """
    bench.options["num_to_keep"] = 1
    bench.environ["RAY_AIR_LOCAL_CACHE_DIR"] = str(bench.folder / "first")
    kept = bench.folder / "kept"
    with interrupted_at(bench, 2, restores=False):
        shutil.copytree(bench.root, kept)
    with interrupted_at(bench, 3, restores=True):
        assert not list(bench.root.glob("*/checkpoint_000000"))
        assert len(list(bench.root.glob("*/checkpoint_000001"))) == 2
    journal_put_back(bench.root, kept)
    bench.environ["RAY_AIR_LOCAL_CACHE_DIR"] = str(bench.folder / "second")
    forget_notes(bench)
    return bench


def test_a_restore_on_another_machine_finds_it_before_it_starts_from_nothing(
    superseded: Bench,
) -> None:
    restored = superseded.restore().succeeds()
    assert epochs_of(restored) == [4, 4]
    assert [found["checkpoint"] for found in results(restored)] == [4, 4]
    assert restored.stderr.count(FOUND) == 2
    assert epochs_run(superseded) == [3, 3, 4, 4]


@pytest.mark.parametrize("damage", rest_nightly(1, ["bytes", "manifest", "another trial's"]))
def test_one_that_is_not_whole_or_not_its_own_is_not_taken(superseded: Bench, damage: str) -> None:
    for folder in superseded.root.glob("*/checkpoint_000001"):
        marker = folder / ".holdfast.json"
        if damage == "bytes":
            weights = folder / "weights"
            weights.write_bytes(b"?" + weights.read_bytes()[1:])
        elif damage == "manifest":
            marker.unlink()
        else:
            marker.write_text(marker.read_text().replace('trial_id": "', 'trial_id": "x'))
    restored = superseded.restore().succeeds()
    assert epochs_of(restored) == [4, 4]
    assert FOUND not in restored.stderr
    assert epochs_run(superseded) == [1, 1, 2, 2, 3, 3, 4, 4]
