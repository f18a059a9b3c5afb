import gc
import json
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.experiment.folder.layout import SNAPSHOT_PREFIX, VARIANTS_PREFIX
from holdfast.experiment.projector.projector import Projector, ProjectorSettings
from holdfast.experiment.records.journal import find_beginning, pack
from holdfast.experiment.records.snapshots import load_newest_snapshot
from holdfast.scheduler.codec import snapshot
from holdfast.scheduler.events import Resumed, SearchEnded
from holdfast.scheduler.machine import Machine
from holdfast.syncer.journal.journal import Journal, Position
from tests.rig.runs.recorded import RecordedExperiment

FIRST = "experiment_state-2023-11-14_22-13-21.json"  # the run begins 1,700,000,001 s after 1970


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RecordedExperiment]:
    recorded = RecordedExperiment(tmp_path)
    yield recorded
    recorded.close()


def take(run: RecordedExperiment, boot: str = "one") -> Projector:
    projector = Projector(run.layout, ProjectorSettings(tensorboard=False), boot=boot)
    projector.catch_up()
    projector.snapshot()
    return projector


def as_json(machine: Machine) -> str:
    return json.dumps(snapshot(machine), default=str)


def names(root: Path, prefix: str = SNAPSHOT_PREFIX) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.name.startswith(prefix))


def restore(run: RecordedExperiment) -> None:
    run.now += 60
    run.add(Resumed(epoch=2, capacity={"CPU": 2}))


def test_a_snapshot_gives_back_the_machine_and_its_place(run: RecordedExperiment) -> None:
    trial = run.begin({"lr": 0.5, "sizes": (1, 2)})
    run.report(trial, {"loss": float("inf"), "raw": b"\xff\x00"}, checkpoint="staged")
    run.suggest()
    projector = take(run)
    loaded = load_newest_snapshot(run.layout)
    assert loaded.skipped == ()
    assert loaded.snapshot is not None
    assert loaded.snapshot.position == projector.position
    assert as_json(loaded.snapshot.machine) == as_json(run.machine)
    assert loaded.snapshot.machine.trials == run.machine.trials
    assert loaded.snapshot.boot_id == "one"


@pytest.mark.parametrize("is_damaged", [False, True])
def test_the_garbage_collector_works_after_a_snapshot_was_loaded(
    run: RecordedExperiment, *, is_damaged: bool
) -> None:
    take(run)
    if is_damaged:
        (run.layout.root / FIRST).write_bytes(b"{}")
    loaded = load_newest_snapshot(run.layout)
    assert bool(loaded.skipped) is is_damaged
    assert gc.isenabled()


def test_the_progress_of_the_search_can_be_read_next_to_it(run: RecordedExperiment) -> None:
    run.suggest()
    take(run)
    path = run.layout.root / names(run.layout.root, VARIANTS_PREFIX)[0]
    made = json.loads(path.read_text())
    assert (made["variants_made"], made["total"], made["seed"]) == (1, None, 0)
    run.add(SearchEnded())
    take(run)
    assert json.loads(path.read_text())["total"] == 1


def test_without_a_snapshot_the_fold_starts_at_the_beginning(run: RecordedExperiment) -> None:
    loaded = load_newest_snapshot(run.layout)
    assert loaded.snapshot is None
    assert loaded.beginning is not None
    assert loaded.beginning.position == Position(0, 0)
    assert loaded.beginning.spec.experiment_id == "experiment-d2a66"
    assert loaded.beginning.began_at == 1_700_000_001.0


def truncate(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flip(data: bytes) -> bytes:
    middle = data.index(b'"active_s"')
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def blank(data: bytes) -> bytes:
    return bytes(len(data))


def of_another_format(data: bytes) -> bytes:
    body = data.split(b"\n", 1)[1].replace(b'"format": 1', b'"format": 9')
    return b'{"crc32": "%08x",\n' % zlib.crc32(body) + body


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (truncate, "CRC-32 does not match"),
        (flip, "CRC-32 does not match"),
        (blank, "CRC-32 does not match"),
        (lambda data: b"", "CRC-32 does not match"),
        (of_another_format, "format 9"),
    ],
)
def test_a_damaged_snapshot_is_reported_and_an_older_one_used(
    run: RecordedExperiment, damage: Callable[[bytes], bytes], reason: str
) -> None:
    run.suggest()
    older = take(run).position
    restore(run)
    take(run)
    newest = run.layout.root / names(run.layout.root)[-1]
    newest.write_bytes(damage(newest.read_bytes()))
    loaded = load_newest_snapshot(run.layout)
    assert loaded.snapshot is not None
    assert loaded.snapshot.position == older
    [skipped] = loaded.skipped
    assert skipped.startswith(f"{newest.name} is not used: ")
    assert reason in skipped


def test_any_flipped_bit_is_noticed(run: RecordedExperiment) -> None:
    take(run)
    path = run.layout.root / FIRST
    data = path.read_bytes()
    for at in range(0, len(data), 7):
        path.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        assert load_newest_snapshot(run.layout).snapshot is None, at
    path.write_bytes(data)
    assert load_newest_snapshot(run.layout).snapshot is not None


def test_a_snapshot_ahead_of_a_journal_that_was_cut_is_not_used(tmp_path: Path) -> None:
    run = RecordedExperiment(tmp_path)
    run.suggest()
    place = take(run).position
    run.close()
    segment = run.layout.journal / "000000.log"
    segment.write_bytes(segment.read_bytes()[: place.offset - 1])
    [skipped] = load_newest_snapshot(run.layout).skipped
    assert "the journal was cut" in skipped
    # Nor once the journal has grown over the place again, with other records.
    journal = Journal(run.layout.journal)
    while journal.position.offset < place.offset:
        journal.append([pack(SearchEnded(), 1.0)])
    [skipped] = load_newest_snapshot(run.layout).skipped
    assert "the journal was cut" in skipped
    journal.close()


def test_only_the_journals_writer_hears_that_the_disk_refuses_the_journal(
    run: RecordedExperiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel may report it once, and after that an fsync succeeds without the records."""
    asked = []

    def fsync(descriptor: int) -> None:
        asked.append(os.readlink(f"/proc/self/fd/{descriptor}"))

    run.suggest()
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "fdatasync", fsync)
    take(run)
    assert asked
    assert not [path for path in asked if path.startswith(str(run.layout.journal))]


def test_a_snapshot_of_an_earlier_experiment_in_the_directory_is_not_used(
    tmp_path: Path, run: RecordedExperiment
) -> None:
    take(run)
    second = RecordedExperiment(tmp_path, run="beef0")
    loaded = load_newest_snapshot(run.layout)
    assert loaded.snapshot is None
    assert loaded.skipped == ()
    assert loaded.beginning is not None
    assert loaded.beginning.spec.run == "beef0"
    assert loaded.beginning.position == Position(1, 0)
    second.close()


def test_a_beginning_longer_than_its_head_is_found(tmp_path: Path) -> None:
    run = RecordedExperiment(tmp_path, stop={"x" * 100_000: 1.0})
    beginning = find_beginning(run.layout.journal)
    assert beginning is not None
    assert beginning.spec.stop == {"x" * 100_000: 1.0}
    run.close()


def test_only_two_sessions_of_an_experiment_keep_their_snapshots(
    tmp_path: Path, run: RecordedExperiment
) -> None:
    take(run)
    second = RecordedExperiment(tmp_path, run="beef0")
    second.now += 3600
    for _ in range(5):
        restore(second)
        take(second)
    kept = names(tmp_path)
    assert kept[0] == FIRST  # another experiment's
    assert len(kept) == 3
    assert [n.replace("experiment_state", "basic-variant-state") for n in kept] == names(
        tmp_path, VARIANTS_PREFIX
    )
    second.close()


def test_a_failed_write_leaves_the_snapshot_that_was_there(
    run: RecordedExperiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    projector = take(run)
    before = (run.layout.root / FIRST).read_bytes()
    run.suggest()
    projector.catch_up()

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("holdfast.syncer.files.durable.fsync_file", refuse)
    with pytest.raises(OSError, match="No space left"):
        projector.snapshot()
    assert (run.layout.root / FIRST).read_bytes() == before
    monkeypatch.undo()
    projector.snapshot()
    assert (run.layout.root / FIRST).read_bytes() != before
