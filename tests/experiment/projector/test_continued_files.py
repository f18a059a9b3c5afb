"""After a kill, the projector continues the files of unfinished trials where the snapshot was."""

from __future__ import annotations

import json
import os
import shutil
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.projector.projector import Projector, ProjectorSettings
from holdfast.experiment.records.snapshots import load_newest_snapshot, snapshot_names
from holdfast.trial.config import FailureConfig
from tests.rig.runs.recorded import RecordedExperiment

KINDS = ("params.json", "result.json", "progress.csv", "error.txt")
_operations: list[int] | None = None


class Killed(BaseException):
    """The projector's process ended here."""


def _count(event: str, arguments: tuple[Any, ...]) -> None:
    writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)
    if _operations is None or not (writes or event in ("os.rename", "os.remove", "os.mkdir")):
        return
    _operations[0] -= 1
    if not _operations[0]:
        raise Killed


@pytest.fixture(scope="module", autouse=True)
def hook() -> None:
    sys.addaudithook(_count)  # which stays until the process ends


def is_killed(projector: Projector, at: int) -> bool:
    """Let it catch up until its `at`-th change of a file."""
    global _operations
    _operations = [at]
    try:
        projector.catch_up()
    except Killed:
        return True
    finally:
        _operations = None
    return False


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RecordedExperiment]:
    """A snapshot exists, with notes of two trials; then these and a new one have gone on."""
    run = RecordedExperiment(tmp_path / "exp", failure=FailureConfig(max_failures=9))
    done, ahead, back = (run.begin({"lr": number}) for number in range(3))
    for trial in (done, ahead, back):
        for step in range(3):
            row = {"loss": step, "text": "a,\n" * step}
            run.report(trial, row, checkpoint="committed" * (step == 1))
    run.finish(done)
    run.fail(back)
    run.start(back)
    run.report(back, {"loss": 77})
    projector = projector_of(run.layout)
    projector.catch_up()
    projector.snapshot()
    run.report(ahead, {"loss": 5}, checkpoint="committed")
    run.fail(back)
    run.start(back)
    run.report(back, {"loss": 9})
    run.finish(back)
    run.report(run.begin(), {"loss": 1, "new": 2})
    yield run
    run.close()


def projector_of(layout: Layout, **wanted: Any) -> Projector:
    return Projector(layout, ProjectorSettings(**wanted), lambda: 0.0, boot="one")


def contents(root: Path) -> dict[str, bytes]:
    """Every file that the projector writes for a trial; an emptied event file, too."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.glob("train_*/*"))
        if path.name in KINDS or ".tfevents." in path.name
    }


def expected(run: RecordedExperiment, tmp_path: Path, **wanted: Any) -> dict[str, bytes]:
    """The files of a projector that reads the whole journal into an empty folder."""
    clean = Layout(tmp_path / "clean")
    shutil.copytree(run.layout.journal, clean.journal)
    projector_of(clean, **wanted).catch_up()
    return contents(clean.root)


def noted(layout: Layout) -> set[str]:
    """The trials of which the snapshot notes something."""
    taken = load_newest_snapshot(layout).snapshot
    assert taken is not None
    return {note.trial_id for note in taken.files.trials} if taken.files else set()


def hide_earlier_records(layout: Layout) -> None:
    """Damage a record before the snapshot: whoever reads on from there stops."""
    segment = layout.journal / "000000.log"
    data = bytearray(segment.read_bytes())
    data[data.index(b"Reported")] ^= 1
    segment.write_bytes(data)


def change_snapshot(layout: Layout, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the snapshot's fields; its checksum is right again."""
    path = layout.root / snapshot_names(layout.root)[0]
    fields = json.loads(path.read_bytes())
    del fields["crc32"]
    change(fields)
    body = json.dumps(fields, indent=0)[2:].encode()
    path.write_bytes(b'{"crc32": "%08x",\n' % zlib.crc32(body) + body)


def test_only_the_records_since_the_snapshot_are_read(
    run: RecordedExperiment, tmp_path: Path
) -> None:
    wanted = expected(run, tmp_path)
    assert len(noted(run.layout)) == 2
    hide_earlier_records(run.layout)
    projector_of(run.layout).catch_up()
    assert contents(run.layout.root) == wanted


def test_wherever_it_was_killed_the_files_are_as_if_all_were_rewritten(
    run: RecordedExperiment, tmp_path: Path
) -> None:
    wanted = expected(run, tmp_path)
    for at in range(1, 1000):
        layout = Layout(tmp_path / "copy")
        shutil.rmtree(layout.root, ignore_errors=True)
        shutil.copytree(run.layout.root, layout.root)
        was_killed = is_killed(projector_of(layout), at)
        projector_of(layout).catch_up()
        assert contents(layout.root) == wanted, at
        if not was_killed:
            break
    assert 20 < at < 999


def test_a_projector_that_was_killed_while_it_appended_leaves_parts_of_rows(
    run: RecordedExperiment, tmp_path: Path
) -> None:
    before = {name: len(data) for name, data in contents(run.layout.root).items()}
    wanted = expected(run, tmp_path)
    projector_of(run.layout).catch_up()
    for name, data in contents(run.layout.root).items():
        os.truncate(run.layout.root / name, max(before.get(name, 0), len(data) - 7))
    projector_of(run.layout).catch_up()
    assert contents(run.layout.root) == wanted


def test_a_file_that_another_program_has_changed_is_rewritten(
    run: RecordedExperiment, tmp_path: Path
) -> None:
    for path in run.layout.root.glob("train_*/result.json"):
        if path.parent != run.folder(next(iter(run.machine.trials))):  # that one has ended
            path.write_bytes(path.read_bytes().replace(b"loss", b"lost"))
    projector_of(run.layout).catch_up()
    assert contents(run.layout.root) == expected(run, tmp_path)


@pytest.mark.parametrize("wanted", [{"tensorboard": False}, {"config_in_rows": False}], ids=str)
def test_files_that_this_run_writes_otherwise_are_rewritten(
    run: RecordedExperiment, tmp_path: Path, wanted: dict[str, bool]
) -> None:
    projector_of(run.layout, **wanted).catch_up()
    ended = run.folder(next(iter(run.machine.trials))).name
    found, new = contents(run.layout.root), expected(run, tmp_path, **wanted)
    assert {name: data for name, data in found.items() if not name.startswith(ended)} == {
        name: data for name, data in new.items() if not name.startswith(ended)
    }


def first_note(fields: dict[str, Any]) -> dict[str, Any]:
    return fields["files"]["trials"][0]  # type: ignore[no-any-return]


DAMAGE: dict[str, Callable[[dict[str, Any]], object]] = {
    "another checksum": lambda note: note["results"].update(crc32=7),
    "more than the file has": lambda note: note["progress"].update(size=1 << 53),
    "another event file": lambda note: note.update(curves_at=3),
    "a mark behind the end": lambda note: note["marks"][-1].update(results=1 << 40),
    "an unknown trial": lambda note: note.update(trial_id="d2a66_99999"),
    "a trial that has ended": lambda note: note.update(trial_id="d2a66_00000"),
    "a mark of more rows": lambda note: note["marks"][-1].update(rows=4),
    "more rows than bytes": lambda note: note.update(rows=1 << 50),
    "a negative size": lambda note: note["results"].update(size=-1),
    "text instead of a number": lambda note: note.update(curves_at="../../etc/passwd"),
    "a size that is missing": lambda note: note.pop("results"),
    "a word that no version knows": lambda note: note.update(colour=1),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_notes_that_are_wrong_cost_time_and_no_row(
    run: RecordedExperiment, tmp_path: Path, damage: Callable[[dict[str, Any]], object]
) -> None:
    change_snapshot(run.layout, lambda fields: damage(first_note(fields)))
    projector_of(run.layout).catch_up()
    assert contents(run.layout.root) == expected(run, tmp_path)
