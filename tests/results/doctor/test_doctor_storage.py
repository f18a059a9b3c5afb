"""The doctor and remote storage: what is missing or wrong there, and who repairs it."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.records.journal import pack
from holdfast.experiment.records.recovery import recover
from holdfast.results.doctor.findings import Remedy
from holdfast.results.doctor.repair import bring_checkpoint, collect, repair
from holdfast.results.doctor.upload import NotFit, sync
from holdfast.results.doctor.verify import Depth, verify
from holdfast.results.reading import ExperimentSite, WrongStorage, find_site
from holdfast.scheduler.events import CheckpointLost
from holdfast.syncer.checkpoint import manifest
from holdfast.syncer.journal.journal import Journal, read_segment
from holdfast.syncer.journal.stretches import Stretch, encode_head, parse_head
from holdfast.syncer.stores.location import Location
from tests.results.doctor.examined import SETTINGS, kinds, newest_checkpoint
from tests.rig import checker
from tests.rig.runs.patient import TEMPORARY, copied, healthy, stored


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The storage of `here/run` is `there/run`, a directory."""
    return stored(tmp_path_factory.mktemp("kept"))


@pytest.fixture
def folder(template: Path, in_memory: Path) -> Path:
    return copied(template, in_memory / "kept")


@pytest.fixture
def here(folder: Path) -> Path:
    return folder / "here" / "run"


@pytest.fixture
def there(folder: Path) -> Path:
    return folder / "there" / "run"


@pytest.fixture
def case(here: Path, there: Path) -> ExperimentSite:
    return ExperimentSite(
        shown="run", layout=Layout(here), remote=Location.resolve(there, None, {}), kept_in=""
    )


@pytest.fixture
def alone(there: Path) -> ExperimentSite:
    """As seen from a machine that has nothing of the run."""
    return ExperimentSite(shown="run", layout=None, remote=Location.resolve(there, None, {}))


def content(root: Path) -> dict[str, tuple[int, bytes]]:
    files = [path for path in root.rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def test_what_sync_has_brought_there_is_sound_from_both_sides(
    case: ExperimentSite, alone: ExperimentSite, there: Path
) -> None:
    before = content(there)
    for report in (verify(case), verify(case, depth=Depth.DOWNLOAD), verify(alone)):
        assert report.findings == ()
    assert checker.check(there, tensorboard=True) == []
    assert sync(case).actions == ()
    assert content(there) == before


def flip_in_the_journal(there: Path) -> None:
    path = sorted(there.glob("journal/*.log"))[0]
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)


def remove_a_segment(there: Path) -> None:
    sorted(there.glob("journal/*.log"))[0].unlink()


def remove_the_weights(there: Path) -> None:
    (newest_checkpoint(there) / "model.txt").unlink()


def remove_a_manifest(there: Path) -> None:
    (newest_checkpoint(there) / ".holdfast.json").unlink()


def spoil_a_manifest(there: Path) -> None:
    (newest_checkpoint(there) / ".holdfast.json").write_text("{")


def remove_a_checkpoint(there: Path) -> None:
    shutil.rmtree(newest_checkpoint(there))


def spoil_the_head(there: Path) -> None:
    (there / "head.json").write_text("{")


def remove_the_head(there: Path) -> None:
    (there / "head.json").unlink()


def remove_files(there: Path) -> None:
    (there / "tuner.pkl").unlink()
    for path in there.glob("*/result.json"):
        path.unlink()


WOUNDS = [
    flip_in_the_journal,
    remove_a_segment,
    remove_the_weights,
    remove_a_manifest,
    spoil_a_manifest,
    remove_a_checkpoint,
    spoil_the_head,
    remove_files,
]


@pytest.mark.parametrize("wound", WOUNDS)
def test_what_is_wrong_there_is_found_from_both_sides_and_sync_mends_it(
    case: ExperimentSite, alone: ExperimentSite, there: Path, wound: Callable[[Path], None]
) -> None:
    wound(there)
    assert not verify(alone).is_sound
    found = [finding for finding in verify(case).findings if finding.is_wrong]
    assert found
    assert {finding.remedy for finding in found} == {Remedy.SYNC}
    assert all(finding.where.startswith("storage: ") for finding in found)
    mended = sync(case)
    assert mended.findings == ()
    assert mended.actions
    assert verify(alone, depth=Depth.DOWNLOAD).findings == ()
    assert checker.check(there, tensorboard=True) == []
    assert sync(case).actions == ()


def test_a_head_that_is_gone_is_published_again(case: ExperimentSite, there: Path) -> None:
    """A restore then uses the segments; unpublished records need the head."""
    remove_the_head(there)
    journal = Journal(case.layout.journal if case.layout else Path())
    lost = CheckpointLost(trial_id="d2a66_00000", index=99, reason="for the test")
    journal.append([pack(lost, 1.0)])
    journal.close()
    assert "records-not-published" in kinds(verify(case))
    assert sync(case).findings == ()
    assert (there / "head.json").exists()


def test_bytes_that_changed_there_are_found_by_a_download_and_put_again(
    case: ExperimentSite, there: Path
) -> None:
    weights = newest_checkpoint(there) / "model.txt"
    data = weights.read_bytes()
    weights.write_bytes(data[:-1] + b"?")
    assert verify(case).is_sound
    (finding,) = verify(case, depth=Depth.DOWNLOAD).findings
    assert "model.txt has a different sha256 checksum" in finding.what
    assert sync(case, downloads=True).actions
    assert weights.read_bytes() == data


def test_a_checkpoint_that_is_broken_here_is_taken_from_there(
    case: ExperimentSite, here: Path, there: Path
) -> None:
    progress = manifest.load(newest_checkpoint(there)).progress
    assert progress is not None
    (newest_checkpoint(here) / "model.txt").write_text("changed")
    (finding,) = verify(case).findings
    assert finding.remedy is Remedy.REPAIR
    report = repair(case, SETTINGS)
    assert manifest.load(newest_checkpoint(here)).progress == progress
    assert [action.what for action in report.actions] == [
        "downloaded from storage, which has it complete"
    ]
    assert report.findings == ()
    assert checker.check(here, tensorboard=True) == []
    assert (newest_checkpoint(here) / "model.txt").read_bytes() == (
        newest_checkpoint(there) / "model.txt"
    ).read_bytes()


def test_a_checkpoint_that_is_only_there_is_no_loss(case: ExperimentSite, here: Path) -> None:
    """As after a move to another machine: a restore fetches what it needs."""
    shutil.rmtree(newest_checkpoint(here))
    assert verify(case).findings == ()
    assert repair(case, SETTINGS).actions == ()


def test_a_checkpoint_that_is_nowhere_is_dropped(
    case: ExperimentSite, here: Path, there: Path
) -> None:
    shutil.rmtree(newest_checkpoint(here))
    remove_the_weights(there)
    found = {finding.kind: finding for finding in verify(case).findings}
    assert found["storage-checkpoint"].remedy is Remedy.NONE
    report = repair(case, SETTINGS)
    assert ["checkpoint 3 dropped" in action.what for action in report.actions] == [True]
    assert sync(case).is_sound
    trial = recover(Layout(here)).machine.trials["d2a66_00000"]
    assert [record.index for record in trial.checkpoints] == [0, 1, 2]


def test_what_changed_here_is_not_uploaded_as_if_it_were_whole(
    case: ExperimentSite, here: Path, there: Path
) -> None:
    (newest_checkpoint(here) / "model.txt").write_text("model of iteration 5")
    remove_a_checkpoint(there)
    report = sync(case)
    assert not [action for action in report.actions if "uploaded" in action.what]
    assert not newest_checkpoint(there).name.endswith("3")
    assert not verify(case).is_sound


def test_a_sync_that_died_resumes(tmp_path: Path) -> None:
    run = healthy(tmp_path / "here" / "run")
    remote = Location.resolve(tmp_path / "there" / "run", None, {})
    whole = ExperimentSite(shown="run", layout=run.layout, remote=remote)
    assert "storage-empty" in kinds(verify(whole))

    def die(done: int, total: int) -> None:
        assert total == 5
        if done == 2:
            raise RuntimeError("it was killed")

    with pytest.raises(RuntimeError, match="it was killed"):
        sync(whole, progress=die)
    assert not verify(whole).is_sound
    report = sync(whole)
    assert report.findings == ()
    assert checker.check(tmp_path / "there" / "run", tensorboard=True) == []


def test_garbage_there_goes_and_what_is_named_or_the_users_stays(
    case: ExperimentSite, alone: ExperimentSite, there: Path
) -> None:
    trial = newest_checkpoint(there).parent
    (there / TEMPORARY).write_text("half")
    shutil.copytree(newest_checkpoint(there), trial / "checkpoint_000017")
    (trial / "best.pt").write_text("the user's")
    (there / "other").mkdir()
    shutil.copytree(newest_checkpoint(there), there / "other" / "checkpoint_000000")
    joined = "journal/000000+77.log"
    (there / joined).write_bytes(b"what became part of 000000.log")
    before = content(there)
    garbage = [
        f"storage: {TEMPORARY}",
        f"storage: {joined}",
        f"storage: {trial.name}/checkpoint_000017",
    ]
    for seen in (case, alone):
        assert [action.where for action in collect(seen, removes=False).actions] == garbage
    assert content(there) == before
    assert [action.where for action in collect(case, removes=True).actions] == garbage
    gone = set(before) - set(content(there))
    assert gone == {
        name
        for name in before
        if any(part in name for part in (TEMPORARY, joined, "checkpoint_000017"))
    }
    # The storage was claimed for that, and another machine learns of it.
    assert kinds(verify(alone)) == ["storage-claimed"]
    assert verify(alone).is_sound


def test_what_is_published_there_names_checkpoints_that_stay(
    case: ExperimentSite, here: Path, there: Path
) -> None:
    """Also if the records here have dropped them since: a restore elsewhere starts from it."""
    journal = Journal(here / "journal")
    lost = CheckpointLost(trial_id="d2a66_00000", index=0, reason="for the test")
    journal.append([pack(lost, 1.0)])
    journal.close()
    garbage = [action.where for action in collect(case, removes=True).actions]
    assert garbage == [f"{newest_checkpoint(here).parent.name}/checkpoint_000000"]
    assert (newest_checkpoint(there).parent / "checkpoint_000000" / "model.txt").exists()


@pytest.mark.parametrize("damage", ["flipped", "zeroed", "missing"])
def test_a_journal_whose_start_is_unreadable_is_taken_from_there(
    case: ExperimentSite, here: Path, there: Path, damage: str
) -> None:
    """Unpublished files here stay."""
    path = here / "journal" / "000000.log"
    sound = path.read_bytes()
    journal = Journal(here / "journal", fresh=True)
    lost = CheckpointLost(trial_id="d2a66_00000", index=99, reason="for the test")
    journal.append([pack(lost, 1.0)])
    journal.close()
    newest_segment = (here / "journal" / "000001.log").read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(
            bytes(600) + sound[600:]
            if damage == "zeroed"
            else b"X" + sound[1:40] + b"?" + sound[41:]
        )
    report = repair(case, SETTINGS)
    assert "restored its beginning from storage" in report.actions[0].what
    assert not [f for f in report.findings if f.kind.startswith("journal")]
    assert path.read_bytes() == sound
    assert (here / "journal" / "000001.log").read_bytes() == newest_segment
    assert bool(list((here / "journal").glob("000000.cut-0"))) is (damage != "missing")


def publish_in_two_stretches(there: Path, *, without: int) -> None:
    """As storage has a segment that still grows; its last `without` records are not published."""
    path = there / "journal" / "000000.log"
    data, head = path.read_bytes(), parse_head((there / "head.json").read_bytes())
    ends = [end for _, end in read_segment(path.parent, 0)]
    stretches = []
    for start, end in ((0, ends[1]), (ends[1], ends[-1 - without])):
        part = data[start:end]
        stretch = Stretch(segment=0, start=start, size=len(part), crc32=zlib.crc32(part))
        (path.parent / stretch.name).write_bytes(part)
        stretches.append(stretch)
    kept = {name: head[name] for name in ("experiment_id", "epoch")}
    (there / "head.json").write_bytes(encode_head(**kept, stretches=stretches))


@pytest.mark.parametrize("stretch", [0, 1])
def test_a_segment_that_is_stored_in_stretches_is_taken_from_there(
    case: ExperimentSite, here: Path, there: Path, stretch: int
) -> None:
    """The records that were written after the publication stay."""
    publish_in_two_stretches(there, without=2)
    path = here / "journal" / "000000.log"
    sound = path.read_bytes()
    ends = [end for _, end in read_segment(path.parent, 0)]
    at = ends[1] + 20 if stretch else 100  # in a record
    path.write_bytes(sound[:at] + b"?" + sound[at + 1 :])
    report = repair(case, SETTINGS)
    assert "from storage" in report.actions[0].what
    assert not [f for f in report.findings if f.kind.startswith("journal")]
    assert path.read_bytes() == sound


def test_a_torn_segment_keeps_what_is_not_published(
    case: ExperimentSite, here: Path, there: Path
) -> None:
    publish_in_two_stretches(there, without=2)
    path = sorted((here / "journal").glob("*.log"))[0]
    sound = path.read_bytes()
    path.write_bytes(sound + bytes(3))
    report = repair(case, SETTINGS)
    assert not [action for action in report.actions if "from storage" in action.what]
    assert path.read_bytes() == sound


def test_a_checkpoint_comes_with_its_empty_folders(tmp_path: Path) -> None:
    kept = tmp_path / "there" / "trial" / "checkpoint_000000"
    (kept / "empty").mkdir(parents=True)
    (kept / "weights").write_text("w")
    manifest.write(kept)
    (kept / "empty").rmdir()  # as in a bucket
    (tmp_path / "here" / "trial").mkdir(parents=True)
    remote = Location.resolve(tmp_path / "there", None, {})
    bring_checkpoint(remote, Layout(tmp_path / "here"), "trial/checkpoint_000000")
    brought = tmp_path / "here" / "trial" / "checkpoint_000000"
    assert (brought / "empty").is_dir()
    assert manifest.verify(brought, deep=True).total_bytes == 1


def test_what_another_machine_has_taken_further_is_not_overwritten(
    case: ExperimentSite, here: Path, there: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(here, tmp_path / "another machine"))
    journal = Journal(copy / "journal")
    lost = CheckpointLost(trial_id="d2a66_00000", index=99, reason="for the test")
    journal.append([pack(lost, 1.0)])
    journal.close()
    sync(ExperimentSite(shown="run", layout=Layout(copy), remote=case.remote))
    before = content(there)
    assert kinds(verify(case)) == ["storage-ahead"]
    with pytest.raises(NotFit, match="another machine has continued the experiment"):
        sync(case)
    assert content(there) == before


def find(path: Path, *, storage: Path | None = None, local: Path | None = None) -> ExperimentSite:
    settings = Settings(local_dir=local or Path("/nowhere"), explicit_local_dir=local is not None)
    return find_site(str(path), None if storage is None else str(storage), settings, {})


def test_an_experiment_is_found_by_its_tree_by_its_storage_and_by_both(
    folder: Path, here: Path, there: Path
) -> None:
    by_tree = find(here)
    assert (by_tree.layout, by_tree.remote) == (Layout(here), None)
    assert by_tree.kept_in == str(there).strip("/")
    (note,) = verify(by_tree).findings
    assert "was not checked" in note.what
    by_both = find(here, storage=there)
    assert by_both.layout == Layout(here)
    assert by_both.remote is not None
    assert verify(by_both).findings == ()
    by_storage = find(there)
    assert by_storage.layout is None
    as_a_restore_does = find(there, local=folder / "here")
    assert as_a_restore_does.layout == Layout(here)
    assert as_a_restore_does.remote is not None


def test_another_storage_than_the_trees_is_refused(here: Path, tmp_path: Path) -> None:
    with pytest.raises(WrongStorage, match=r"is persisted in .*there/run, not in"):
        find(here, storage=tmp_path / "elsewhere")
    with pytest.raises(NotFit, match="--storage"):
        sync(find(here))
