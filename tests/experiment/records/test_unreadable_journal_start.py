"""A journal whose start cannot be read: every command refuses it, and the doctor repairs it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import tune
from holdfast.cli import main
from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.records.journal import JournalUnreadable, check_nothing_behind
from holdfast.experiment.records.recovery import recover
from holdfast.experiment.user_objects.tuner_file import write as write_tuner_file
from holdfast.results.reading import load_experiment
from holdfast.results.result_grid import ExperimentAnalysis
from holdfast.scheduler.codec import snapshot
from holdfast.scheduler.events import SearchEnded
from holdfast.syncer.errors import StorageRefused
from holdfast.syncer.journal.segment import Position, RecordSpan, framed, readable_end, start_of
from tests.rig import checker
from tests.rig.runs.patient import healthy
from tests.rig.runs.recorded import RecordedExperiment


def train(config: dict[str, object]) -> None:
    raise AssertionError("nothing may begin")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("patient") / "run"
    healthy(root, ended=False, metric="loss", mode="min")
    write_tuner_file(Layout(root).tuner, {})
    return root


@pytest.fixture
def root(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("RAY_STORAGE", "RAY_AIR_LOCAL_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return Path(shutil.copytree(template, tmp_path / "storage" / "run"))


def segment(root: Path) -> Path:
    return root / "journal" / "000000.log"


def _flip(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "magic": _flip(2),
    "first record": _flip(40),
    "length of the first record": _flip(11),
    "zeroed block": lambda data: bytes(4096) + data[4096:],
    "newer format": lambda data: data[:7] + b"\x09" + framed(b"\x81\xa3new\x01") + data[8:],
    "format": lambda data: data[:7] + b"\x09" + data[8:],
}


def facts(root: Path) -> dict[str, bytes]:
    files = [path for path in sorted(root.rglob("*")) if path.is_file()]
    return {str(path): path.read_bytes() for path in files if ".lock" not in path.name}


def tuner(root: Path) -> tune.Tuner:
    config = tune.RunConfig(name=root.name, storage_path=str(root.parent), verbose=0)
    return tune.Tuner(train, run_config=config)


ENTRIES: dict[str, Callable[[Path], object]] = {
    "fit": lambda root: tuner(root).fit(),
    "fit(resume='auto')": lambda root: tuner(root).fit(resume="auto"),
    "fit(resume='must')": lambda root: tuner(root).fit(resume="must"),
    "restore": lambda root: tune.Tuner.restore(str(root), trainable=train),
    "can_restore": lambda root: tune.Tuner.can_restore(str(root)),
    "get_results": lambda root: load_experiment(root),
    "ExperimentAnalysis": lambda root: ExperimentAnalysis(str(root)),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("entry", ENTRIES)
def test_every_entry_refuses_it_and_leaves_everything_as_it_is(
    root: Path, entry: str, damage: str
) -> None:
    segment(root).write_bytes(DAMAGES[damage](segment(root).read_bytes()))
    before = facts(root)
    expected = StorageRefused if damage == "newer format" else JournalUnreadable
    with pytest.raises(expected) as caught:
        ENTRIES[entry](root)
    said = str(caught.value)
    assert "000000.log" in said
    if damage == "newer format":
        assert "journal format 9" in said
    else:
        assert f"holdfast doctor repair {root}" in said
    assert facts(root) == before


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("command", ["ls", "show", "best", "resume", "doctor"])
def test_every_command_says_so_in_one_line(
    root: Path, command: str, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    segment(root).write_bytes(DAMAGES[damage](segment(root).read_bytes()))
    assert main([command, str(root)]) in (1, 2)
    said = "".join(capsys.readouterr())
    assert "Traceback" not in said
    assert ("journal format 9" if damage == "newer format" else "journal") in said


@pytest.mark.parametrize("gone", ["journal", "segment"])
@pytest.mark.parametrize("entry", ["fit", "fit(resume='auto')", "restore"])
def test_an_experiment_without_its_journal_is_not_started_again(
    root: Path, entry: str, gone: str
) -> None:
    shutil.rmtree(root / "journal")
    if gone == "segment":
        (root / "journal").mkdir()
    with pytest.raises(JournalUnreadable, match="it has no segments, but"):
        ENTRIES[entry](root)


@pytest.mark.parametrize(
    "damage", ["magic", "format", "first record", "length of the first record"]
)
def test_the_doctor_gives_it_its_beginning_back(
    root: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    known = snapshot(recover(Layout(root)).machine)
    data = segment(root).read_bytes()
    damaged = DAMAGES[damage](data)
    segment(root).write_bytes(damaged)
    assert main(["doctor", str(root)]) == 1
    assert "holdfast doctor repair" in capsys.readouterr().out
    assert main(["doctor", "repair", str(root)]) == 0
    assert (root / "journal" / "000000.cut-0").read_bytes() == damaged
    found = snapshot(recover(Layout(root)).machine)
    for plain in (known, found):
        plain.pop("active_s")  # the first moment is known to within the first step
    assert found == known
    assert checker.check(root) == []
    assert main(["doctor", "repair", str(root)]) == 0
    assert len(list((root / "journal").glob("*.cut-*"))) == 1


def test_a_newer_format_is_never_repaired(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    segment(root).write_bytes(DAMAGES["newer format"](segment(root).read_bytes()))
    before = segment(root).read_bytes()
    assert main(["doctor", "repair", str(root)]) == 1
    assert "journal format 9" in "".join(capsys.readouterr())
    assert segment(root).read_bytes() == before
    assert [path.name for path in (root / "journal").iterdir()] == ["000000.log"]


def test_without_a_snapshot_it_stays_as_it_is(root: Path) -> None:
    for path in root.glob("experiment_state-*"):
        path.unlink()
    segment(root).write_bytes(DAMAGES["first record"](segment(root).read_bytes()))
    before = facts(root)
    assert main(["doctor", "repair", str(root)]) == 1
    assert facts(root) == before


def test_a_finished_run_followed_by_one_that_cannot_be_read_is_not_followed_by_another(
    tmp_path: Path,
) -> None:
    root = tmp_path / "run"
    first = RecordedExperiment(root)
    first.finish(first.begin())
    first.add(SearchEnded())
    first.close()
    second = RecordedExperiment(root, run="ab12c")
    second.suggest()
    second.close()
    path = root / "journal" / "000001.log"
    path.write_bytes(DAMAGES["first record"](path.read_bytes()))
    for entry in ("fit", "fit(resume='auto')"):
        with pytest.raises(JournalUnreadable, match=r"000001\.log"):
            ENTRIES[entry](root)


def test_records_that_were_written_again_are_nothing_behind_the_end(root: Path) -> None:
    """After an fsync that failed at the very end of a run. A snapshot may name the end of the
    originals or of the copies."""
    end = readable_end(root / "journal")
    data = segment(root).read_bytes()
    copied = len(data) - end.offset + 100
    for length in (0, copied):
        span = RecordSpan(end.segment, len(data) - length, length)
        start, table = start_of(1, [span])
        again = segment(root).with_name("000001.log")
        again.write_bytes(start + data[len(data) - length :])
        check_nothing_behind(root / "journal", end)
        check_nothing_behind(root / "journal", Position(1, table.base + length))
        with again.open("ab") as file:
            file.write(b"damaged" + framed(b"the record of another run"))
        with pytest.raises(JournalUnreadable, match=r"000001\.log is damaged from offset"):
            check_nothing_behind(root / "journal", end)
