"""A journal that has lost several records at its start: it restarts with a snapshot's state."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.cli import main
from holdfast.experiment.control.user_threads import history
from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.projector.projector import Projector, ProjectorSettings
from holdfast.experiment.records.journal import JournalUnreadable, read_events
from holdfast.experiment.records.recovery import recover
from holdfast.experiment.records.snapshots import read_snapshot, snapshot_names
from holdfast.results.doctor.verify import verify
from holdfast.results.reading import ExperimentSite
from holdfast.scheduler.codec import snapshot
from holdfast.scheduler.events import Recalled, Suggested
from holdfast.simulate.simulation import read_recording
from holdfast.syncer.journal.journal import Position
from holdfast.trial.errors import InvalidConfig
from tests.rig import checker
from tests.rig.runs.patient import healthy

ROWS = ("result.json", "progress.csv", "error.txt", "params.json", "events.out.*")


@pytest.fixture(scope="module", params=[False, True], ids=["unfinished", "finished"])
def template(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("patient") / "run"
    healthy(root, ended=request.param, metric="loss", mode="min")
    return root


@pytest.fixture
def root(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "run"))


def journal(root: Path) -> list[Path]:
    return sorted((root / "journal").glob("*.log"))


def zero(root: Path) -> None:
    path = journal(root)[0]
    data = path.read_bytes()
    lost = min(4096, end_of_snapshot(root) - 64)
    path.write_bytes(bytes(lost) + data[lost:])


def end_of_snapshot(root: Path) -> int:
    return read_snapshot(Layout(root), snapshot_names(root)[0]).position.offset


def lose_all(root: Path) -> None:
    shutil.rmtree(root / "journal")


def cut_before_the_snapshot(root: Path) -> None:
    path = journal(root)[0]
    path.write_bytes(bytes(512) + path.read_bytes()[512 : end_of_snapshot(root) - 20])


DAMAGES: dict[str, Callable[[Path], None]] = {
    "zeroed block": zero,
    "no journal": lose_all,
    "snapshot newer than every record": cut_before_the_snapshot,
}


def files(root: Path) -> dict[str, bytes]:
    found = [path for pattern in ROWS for path in sorted(root.glob(f"*/{pattern}"))]
    data = {str(path.relative_to(root)): path.read_bytes() for path in found}
    return {name: content for name, content in data.items() if content}


def state(root: Path) -> str:
    return json.dumps(snapshot(recover(Layout(root)).machine), default=repr)


def case(root: Path) -> ExperimentSite:
    return ExperimentSite(shown=str(root), layout=Layout(root), remote=None)


def test_the_records_behind_the_snapshot_follow_its_state(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known, before = state(root), files(root)
    zero(root)
    with pytest.raises(JournalUnreadable):
        recover(Layout(root))
    assert main(["doctor", "repair", str(root)]) == 0
    said = capsys.readouterr().out
    assert "from the state in the snapshot" in said
    assert "the records before it are lost" in said
    assert state(root) == known
    for path in root.glob("experiment_state-*"):
        path.unlink()
    assert state(root) == known
    assert files(root) == before
    assert verify(case(root)).findings == ()
    assert checker.check(root, ended=False) == []
    assert main(["doctor", "repair", str(root)]) == 0
    assert "anew" not in capsys.readouterr().out
    main(["show", str(root)])
    assert "earlier runs" not in capsys.readouterr().out


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_row_that_the_files_had_up_to_the_state_stays(root: Path, damage: str) -> None:
    before = files(root)
    DAMAGES[damage](root)
    assert main(["doctor", "repair", str(root)]) == 0
    assert verify(case(root)).is_sound
    recovered = recover(Layout(root))
    begins = Position(recovered.begins)
    (first, *_) = [r.event for r, _ in read_events(root / "journal", begins)]
    assert isinstance(first, Recalled)
    for trial in recovered.machine.trials.values():
        name = f"{trial.spec.dirname}/result.json"
        had = before.get(name, b"").splitlines()
        has = files(root).get(name, b"").splitlines()
        assert has == had[: trial.iteration]
    assert checker.check(root, ended=False) == []
    reached = [trial.iteration for trial in recovered.machine.trials.values()]
    lacks_end = damage != "zeroed block"
    # A checkpoint that was committed after the snapshot shows how far the second had come.
    is_shown = second_has_ended(before)
    assert reached == [4 if lacks_end else 5, 5 if is_shown else 4, 0]


def second_has_ended(before: dict[str, bytes]) -> bool:
    return any("_00001_" in name and b'"loss": 0.2' in data for name, data in before.items())


def test_who_keeps_a_state_hears_which_trials_there_are(root: Path) -> None:
    zero(root)
    assert main(["doctor", "repair", str(root)]) == 0
    recovered = recover(Layout(root), will_continue=True)
    assert any("does not see the earlier rows" in notice for notice in recovered.notices)
    told = list(history(root / "journal", Position(recovered.begins), recovered.end))
    suggested = [event.spec.trial_id for event, _, _ in told if isinstance(event, Suggested)]
    assert suggested == list(recovered.machine.trials)


def test_what_no_record_has_cannot_be_replayed(root: Path) -> None:
    zero(root)
    assert main(["doctor", "repair", str(root)]) == 0
    with pytest.raises(InvalidConfig, match="first records of its journal were lost"):
        read_recording(root)


def test_files_are_rewritten_from_what_is_left(root: Path) -> None:
    zero(root)
    assert main(["doctor", "repair", str(root)]) == 0
    before = files(root)
    projector = Projector(Layout(root), ProjectorSettings(), boot="another start of the system")
    projector.catch_up()
    assert files(root) == before
    (torn,) = root.glob("*_00000_*/result.json")
    torn.write_bytes(torn.read_bytes()[:-10])
    assert main(["doctor", "repair", str(root)]) == 0
    assert files(root) == before
