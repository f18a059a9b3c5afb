"""A restore looks only into folders in which a process may have left something."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.experiment.folder.contents import LeadsElsewhere, check_enclosed_trials
from holdfast.experiment.projector import process
from holdfast.experiment.projector.projector import Projector, ProjectorSettings
from holdfast.experiment.records.recovery import recover
from holdfast.experiment.records.snapshots import load_newest_snapshot
from holdfast.runtime.transport import Channel
from holdfast.scheduler.events import CheckpointLost, Resumed
from holdfast.scheduler.resuming import written
from holdfast.syncer.uploader.lock import ExperimentLock, LockLost
from holdfast.trial.config import ResumeType
from tests.experiment.projector.test_leftovers import Controllers, take_over, unnamed
from tests.rig.runs.recorded import RecordedExperiment

TEMPORARY = ".tmp-0123456789abcdef"
REMEMBERS = ProjectorSettings(tensorboard=False, remembers_clean=True)
_looked: list[str] | None = None


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if _looked is not None and event in ("os.scandir", "os.listdir", "open", "os.remove"):
        _looked.append(f"{event} {arguments[0]}")


@contextmanager
def looking() -> Iterator[list[str]]:
    """Collects what this process lists and opens in the block."""
    global _looked
    looked = _looked = []
    try:
        yield looked
    finally:
        _looked = None


@pytest.fixture(scope="module", autouse=True)
def hook() -> None:
    sys.addaudithook(_note)  # which stays until the process ends


def ended(run: RecordedExperiment) -> str:
    trial_id = run.begin()
    run.report(trial_id, {"loss": 1}, checkpoint="committed")
    run.finish(trial_id)
    return trial_id


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RecordedExperiment]:
    recorded = RecordedExperiment(tmp_path / "exp")
    yield recorded
    recorded.close()


def incarnation(run: RecordedExperiment, boot: str = "one", in_s: float = 10) -> Projector:
    """A run that takes the lock and writes what the journal has."""
    take_over(run.layout, in_s=in_s)
    projector = Projector(run.layout, REMEMBERS, boot=boot)
    projector.catch_up()
    return projector


def ends(projector: Projector) -> None:
    projector.sweep()
    projector.snapshot()


def unswept(run: RecordedExperiment) -> set[str] | None:
    """The trials whose folders the snapshot does not call clean; None for all."""
    taken = load_newest_snapshot(run.layout).snapshot
    assert taken is not None
    if taken.unswept is None:
        return None
    ids = {trial.spec.dirname: trial_id for trial_id, trial in run.machine.trials.items()}
    return {ids[name] for name in taken.unswept}


def left_in(run: RecordedExperiment, trial_id: str) -> Path:
    path = run.folder(trial_id) / TEMPORARY
    path.touch()
    return path


# -- how much is looked at --------------------------------------------------------------------


def looks_of_a_restore(root: Path, finals: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a restore of an experiment with so many final trials and an unfinished one lists and
    opens before its trials run, and at its end."""
    monkeypatch.setattr(process, "give_way", lambda nice: None)
    run = RecordedExperiment(root)
    for _ in range(finals):
        ended(run)
    run.report(run.begin(), {"loss": 1})
    opening: list[Any] = [str(root), {"tensorboard": False, "remembers_clean": True}]
    for _ in range(2):  # the first restore sweeps each folder once
        resumed = Resumed(epoch=2, capacity={"CPU": 1}, boot_id="")
        with looking() as looked:
            machine = recover(run.layout).machine
            check_enclosed_trials(run.layout, machine, written(machine, resumed))
            lock = ExperimentLock(run.layout.lock)
            take_over(run.layout, in_s=10)
            controller = Controllers(["open", *opening, [*lock.claim], 0.0])
            process.main(cast(Channel, controller))
        lock.release()
        run.add(resumed)
    run.close()
    return looked


def test_a_restore_does_not_list_or_open_more_with_more_final_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = looks_of_a_restore(tmp_path / "few", 5, monkeypatch)
    many = looks_of_a_restore(tmp_path / "many", 50, monkeypatch)
    assert len(few) == len(many) > 10
    finals = [f"train_d2a66_{number:05d}" for number in range(50)]
    assert not [one for one in many if any(name in one for name in finals)]


# -- what is not looked at is clean -----------------------------------------------------------


def test_a_trial_is_clean_once_it_has_ended_and_nothing_is_left(run: RecordedExperiment) -> None:
    done, alive = ended(run), run.begin()
    projector = incarnation(run)
    ends(projector)
    assert unswept(run) == {alive}
    run.report(alive, {"loss": 1})
    run.finish(alive)
    projector.catch_up()
    projector.snapshot()
    assert unswept(run) == set()
    stays = left_in(run, done)
    run.suggest()
    ends(incarnation(run))
    assert stays.exists()  # nobody looks, because no process can have left it


def test_what_a_process_left_after_the_last_clean_point_goes(run: RecordedExperiment) -> None:
    others, again = ended(run), ended(run)
    ends(incarnation(run))
    run.add(Resumed(epoch=2, capacity={"CPU": 9}, boot_id="", finished=ResumeType.RESTART))
    for trial_id in (others, again):
        run.start(trial_id)
    # The run dies here.
    left = [left_in(run, again), unnamed(run, again)]
    run.finish(again)
    incarnation(run)
    assert [path.exists() for path in left] == [False, False]


@pytest.mark.parametrize("what", ["live staging", "superseded", "uncommitted", "new leftover"])
def test_a_folder_that_is_not_clean_is_swept_again(run: RecordedExperiment, what: str) -> None:
    clean, trial_id = ended(run), run.begin()
    run.report(trial_id, {"loss": 1}, checkpoint="committed")
    run.report(trial_id, {"loss": 1}, checkpoint="staged" if what == "uncommitted" else "")
    if what == "superseded":  # the uploader has not removed it yet
        run.add(CheckpointLost(trial_id=trial_id, index=0, reason="superseded"))
    run.finish(trial_id)
    folder = run.folder(trial_id)
    if what == "live staging":
        (folder / ".staging" / "0123").mkdir(parents=True)
    elif what == "new leftover":
        (folder / TEMPORARY).touch()
    ends(incarnation(run, in_s=-10))
    found = unswept(run)
    assert found == {trial_id}
    assert clean not in found


def test_a_trial_whose_worker_lives_is_not_clean(run: RecordedExperiment) -> None:
    ended(run)
    trial_id = run.begin()
    run.report(trial_id, {"loss": 1})
    run.fail(trial_id, exits=False)
    ends(incarnation(run))
    assert unswept(run) == {trial_id}


def test_after_another_boot_or_a_move_every_folder_is_swept(run: RecordedExperiment) -> None:
    done = ended(run)
    ends(incarnation(run))
    assert unswept(run) == set()
    left = left_in(run, done)
    ends(incarnation(run, boot="two"))
    assert not left.exists()


def test_a_sweep_that_a_crash_cut_off_is_made_by_the_next_run(
    run: RecordedExperiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, alive = ended(run), run.begin()
    ends(incarnation(run))
    run.report(alive, {"loss": 1})
    run.finish(alive)
    left = left_in(run, alive)

    def lost() -> None:
        raise LockLost("keep the lock", "", "it was removed", "")

    take_over(run.layout, in_s=10)
    cut_off = Projector(run.layout, REMEMBERS, boot="one", check_ownership=lost)
    cut_off.catch_up()
    cut_off.snapshot()
    assert left.exists()
    assert unswept(run) == {alive}
    run.suggest()
    ends(incarnation(run))
    assert not left.exists()
    assert done not in (unswept(run) or ())


def test_with_an_uploader_or_nodes_no_folder_counts_as_clean(run: RecordedExperiment) -> None:
    ended(run)
    take_over(run.layout, in_s=10)
    projector = Projector(run.layout, ProjectorSettings(tensorboard=False), boot="one")
    projector.catch_up()
    ends(projector)
    assert unswept(run) is None


# -- nothing is written behind a link ---------------------------------------------------------


def linked_out(run: RecordedExperiment, trial_id: str) -> Path:
    """The trial's folder is a link to a folder of somebody else, with what a run would change."""
    victim = run.layout.root.parent / "victim"
    run.folder(trial_id).rename(victim)
    (victim / TEMPORARY).touch()
    (victim / ".staging" / "0123").mkdir(parents=True)
    (victim / "checkpoint_000007").mkdir()
    (victim / "checkpoint_000007" / ".holdfast-staged").touch()
    run.folder(trial_id).symlink_to(victim)
    return victim


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() if p.is_file() else b"" for p in folder.rglob("*")}


@pytest.mark.parametrize("boot", ["one", "two"])
def test_a_projector_writes_and_removes_nothing_behind_a_link(
    run: RecordedExperiment, boot: str
) -> None:
    """On another boot it writes all files anew."""
    done, other = ended(run), ended(run)
    ends(incarnation(run))
    victim = linked_out(run, done)
    before = contents(victim)
    left = left_in(run, other)
    run.suggest()
    projector = incarnation(run, boot)
    ends(projector)
    assert contents(victim) == before
    if boot == "two":
        assert not left.exists()
        assert "is a link" in (projector.trouble or "")
        assert done in (unswept(run) or ())


def test_a_restore_refuses_links_where_it_will_write(run: RecordedExperiment) -> None:
    done, failed = ended(run), run.begin()
    run.fail(failed)
    run.write_files()
    linked_out(run, failed)
    for event, is_refused in (
        (Resumed(epoch=2, capacity={}, boot_id=""), False),
        (Resumed(epoch=2, capacity={}, boot_id="", errored=ResumeType.RESTART), True),
    ):
        trials = [*written(run.machine, event)]
        assert run.trial(done) not in trials
        if not is_refused:
            check_enclosed_trials(run.layout, run.machine, trials)
            continue
        with pytest.raises(LeadsElsewhere, match="is a link"):
            check_enclosed_trials(run.layout, run.machine, trials)
