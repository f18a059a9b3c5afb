"""An experiment for the doctor, and ways to damage it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.records.place import mark
from holdfast.experiment.user_objects import tuner_file
from holdfast.experiment.user_objects.stored_objects import StoredField
from holdfast.results.doctor.upload import sync
from holdfast.results.reading import ExperimentSite
from holdfast.syncer.files.durable import boot_id
from holdfast.syncer.stores.location import Location
from holdfast.trial.config import FailureConfig
from tests.rig.runs.recorded import RecordedExperiment

TEMPORARY = ".tmp-0123456789abcdef"


def healthy(root: Path, *, ended: bool = True, **spec: Any) -> RecordedExperiment:
    """Three trials with rows, curves, checkpoints and a snapshot: one was retried, one has failed.

    Unless it has `ended`, one trial is still training.
    """
    retried = FailureConfig(max_failures=1)
    run = RecordedExperiment(root, boot=boot_id(), tensorboard=True, failure=retried, **spec)
    tuner_file.write(
        run.layout.tuner,
        {
            "trainable": StoredField(pickled=b"never unpickled"),
            "param_space": StoredField(plain={}),
        },
    )
    first, second, third = (run.begin({"lr": 0.1 * n, "kind": "a"}) for n in range(1, 4))
    for epoch in range(2):
        run.report(second, {"loss": 9.0 - epoch})
    run.fail(second)
    run.start(second)
    for epoch in range(4):
        row = {"loss": 1.0 / (epoch + 1), "nested": {"a": [1, epoch]}, "text": "a,b\nc"}
        run.report(first, row, checkpoint="committed")
        run.report(second, {"loss": float("nan"), "late": epoch} if epoch else row)
    run.write_files(snapshot=True)
    run.fail(third)
    run.start(third)
    run.fail(third, message="oh no, again")
    run.report(first, {"loss": 0.1})
    run.finish(first)
    if ended:
        run.report(second, {"loss": 0.2, "done": True}, checkpoint="committed")
        run.finish(second)
    run.ends()
    return run


def stored(folder: Path, **spec: Any) -> Path:
    """A folder with a healthy experiment at `here/run`, whose storage is the directory
    `there/run`."""
    run = healthy(folder / "here" / "run", **spec)
    remote = Location.resolve(folder / "there" / "run", None, {})
    sync(ExperimentSite(shown="run", layout=run.layout, remote=remote))
    return folder


def copied(template: Path, target: Path) -> Path:
    """A copy of such a folder, whose experiment has the copied storage."""
    copy = Path(shutil.copytree(template, target, symlinks=True))
    mark(Layout(copy / "here" / "run"), Location.resolve(copy / "there" / "run", None, {}))
    return copy


def _files(root: Path, pattern: str) -> list[Path]:
    found = sorted(path for path in root.glob(pattern) if path.is_file() and path.stat().st_size)
    assert found, f"{pattern} is nowhere in {root}"
    return found


def flip(path: Path, random: Random) -> None:
    """Flip one bit, anywhere."""
    data = bytearray(path.read_bytes())
    data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    path.write_bytes(data)


def cut(path: Path, random: Random) -> None:
    """Cut off some of its end."""
    with path.open("r+b") as file:
        file.truncate(random.randrange(path.stat().st_size))


def extend(path: Path, random: Random) -> None:
    """Append something."""
    with path.open("ab") as file:
        file.write(random.randbytes(random.randrange(1, 64)))


def delete(path: Path, random: Random) -> None:
    path.unlink()


HURTS: Mapping[str, Callable[[Path, Random], None]] = {
    "flipped": flip,
    "cut": cut,
    "extended": extend,
    "deleted": delete,
}
PLACES: Mapping[str, str] = {
    "journal": "journal/*.log",
    "snapshot": "experiment_state-*.json",
    "rows": "*/result.json",
    "table": "*/progress.csv",
    "curves": "*/events.out.tfevents.*",
    "parameters": "*/params.json",
    "weights": "*/checkpoint_*/model.txt",
    "manifest": "*/checkpoint_*/.holdfast.json",
}


def hurt(root: Path, place: str, how: str, random: Random) -> Path:
    """Damage one file of those at a place, in one way; returns which."""
    path = random.choice(_files(root, PLACES[place]))
    HURTS[how](path, random)
    return path


def litter(root: Path) -> list[str]:
    """Create what dead processes and superseded checkpoints leave; returns the names of unneeded
    files."""
    (trial, *_) = sorted(path for path in root.glob("train_*") if path.is_dir())
    (root / TEMPORARY).write_text("half a snapshot")
    (trial / ".staging" / "0123").mkdir(parents=True)
    (trial / "checkpoint_000000" / TEMPORARY).write_text("half a manifest")
    shutil.copytree(trial / "checkpoint_000000", trial / "checkpoint_000017")
    inside = (".staging/0123", f"checkpoint_000000/{TEMPORARY}", "checkpoint_000017")
    return sorted([TEMPORARY, *(f"{trial.name}/{name}" for name in inside)])


def keepsakes(root: Path) -> list[Path]:
    """The user's own files and folders, some with names like holdfast's."""
    (trial, *_) = sorted(path for path in root.glob("train_*") if path.is_dir())
    kept = [
        root / "notes.txt",
        root / "checkpoint_000001" / "weights",
        root / "other" / "checkpoint_000000" / "weights",
        root / "other" / "params.json",
        trial / "best.pt",
        trial / "checkpoint_best" / "weights",
        trial / "checkpoint-500" / "weights",
        trial / "tmp-0123456789abcdef",
        trial / "images" / "checkpoint_000099" / "x.png",
    ]
    for path in kept:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("the user's")
    return kept
