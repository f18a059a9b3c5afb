"""The files of a trial: logs, artifacts and checkpoints, also those that somebody has planted."""

from __future__ import annotations

import io
import json
import os
import socket
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.experiment.folder import trial_folder
from holdfast.experiment.folder.contents import LeadsElsewhere
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.folder.trial_folder import TrialFolder
from holdfast.experiment.records.view import ExperimentView
from holdfast.results.logs import folder_of
from holdfast.results.page.rows import Wanted, read_curve
from holdfast.results.page.trial_files import (
    NotThere,
    artifact,
    artifacts_of,
    checkpoint_tar,
    sizes_in,
)
from holdfast.results.page.trial_page import read_log, trial_plain
from holdfast.results.reading import find
from holdfast.syncer.checkpoint.reading import BeingRead, retire
from holdfast.syncer.files.tree import NotRegular
from holdfast.trial.config import CheckpointConfig
from tests.rig.runs.recorded import RecordedExperiment

SAME = {"is_anew": False}
PNG = b"\x89PNG\r\n\x1a\n" + bytes(50)


class Trial:
    """One trial of a run, and what its page shows."""

    def __init__(self, root: Path, **spec: Any) -> None:
        self.run = RecordedExperiment(root, metric="loss", mode="min", **spec)
        self.id = self.run.begin({"lr": 0.1})
        self.run.report(self.id, {"loss": 1.0}, checkpoint="committed")
        self.folder = self.run.folder(self.id)

    @property
    def found(self) -> ExperimentView:
        return find(str(self.run.layout.root), Settings.read({}), {})

    def page(self) -> dict[str, Any]:
        found = self.found
        return trial_plain(found, found.machine.trials[self.id], now=self.run.now)

    def artifacts(self) -> dict[str, bool]:
        return {one["path"]: one["is_image"] for one in self.page()["artifacts"]}

    def read(self, path: str) -> bytes:
        found = self.found
        return b"".join(artifact(found, found.machine.trials[self.id], path).pieces)

    def log(self, name: str, offset: int) -> dict[str, Any]:
        found = self.found
        return read_log(found, found.machine.trials[self.id], name, offset)

    def tar(self, dirname: str = "checkpoint_000000") -> tarfile.TarFile:
        found = self.found
        sent = checkpoint_tar(found, found.machine.trials[self.id], dirname)
        data = b"".join(sent.pieces)
        assert len(data) == sent.size_bytes
        return tarfile.open(fileobj=io.BytesIO(data))


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    made = Trial(tmp_path / "run")
    yield made
    made.run.close()


def test_artifacts_are_the_users_files(trial: Trial) -> None:
    (trial.folder / "deep" / "er").mkdir(parents=True)
    (trial.folder / "deep" / "er" / "curve.png").write_bytes(PNG)
    (trial.folder / "fake.png").write_bytes(b"<svg onload=alert(1)>")
    (trial.folder / "page.html").write_text("<script>alert(1)</script>")
    (trial.folder / "stdout.rank-1").write_text("hello")
    (trial.folder / "stdout").write_text("hello")
    trial.run.write_files()
    assert trial.artifacts() == {
        "deep/er/curve.png": True,
        "fake.png": False,
        "page.html": False,
    }
    assert trial.read("deep/er/curve.png") == PNG
    found = trial.found
    known = found.machine.trials[trial.id]
    assert artifact(found, known, "deep/er/curve.png").media_type == "image/png"
    for path in ("fake.png", "page.html"):
        assert artifact(found, known, path).media_type == ""


def test_a_file_that_is_cut_while_it_is_sent_is_an_error(trial: Trial) -> None:
    (trial.folder / "large").write_bytes(bytes(3 << 20))
    found = trial.found
    pieces = artifact(found, found.machine.trials[trial.id], "large").pieces
    next(pieces)
    os.truncate(trial.folder / "large", 1 << 20)
    with pytest.raises(OSError, match="the file has become shorter while it was sent"):
        list(pieces)


def test_only_the_first_thousand_artifacts_are_listed(trial: Trial) -> None:
    for at in range(1_005):
        (trial.folder / f"f{at:04}").touch()
    page = trial.page()
    assert (len(page["artifacts"]), page["artifacts_more"]) == (1_000, 5)


PLANTED = ["link", "folder-link/secret", "fifo", "socket", "deep/../link", "/etc/passwd", ".."]


def test_nothing_outside_the_trial_is_read(trial: Trial, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (trial.folder / "link").symlink_to(outside / "secret")
    (trial.folder / "folder-link").symlink_to(outside)
    (trial.folder / "deep").mkdir()
    os.mkfifo(trial.folder / "fifo")
    with socket.socket(socket.AF_UNIX) as listening:
        descriptor = os.open(trial.folder, os.O_RDONLY)
        listening.bind(f"/proc/self/fd/{descriptor}/socket")
        os.close(descriptor)
        assert trial.artifacts() == {}
        for path in PLANTED:
            with pytest.raises((NotThere, NotRegular)):
                trial.read(path)
    strange = ["", ".", "a//b", "../../secret", "\0", "a\nb", "x" * 5_000, "\udcff", "a/" * 50]
    for path in strange:
        with pytest.raises(NotThere):
            trial.read(path)
    for name in ("stdout", "stderr"):
        (trial.folder / name).unlink(missing_ok=True)
        (trial.folder / name).symlink_to(outside / "secret")
        with pytest.raises(NotRegular):
            trial.log(name, 0)


def test_a_folder_that_is_a_link_is_refused(trial: Trial, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    trial.folder.rename(moved)
    trial.folder.symlink_to(moved)
    (moved / "file").write_text("secret")
    for read in (trial.read, lambda name: trial.log("stdout", 0), lambda name: trial.tar()):
        with pytest.raises(LeadsElsewhere):
            read("file")
    assert "is a link" in trial.page()["files_problem"]


@pytest.mark.parametrize("place", ["trial", "experiment", "above"])
def test_a_folder_that_becomes_a_link_after_it_was_looked_at_is_not_followed(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every look finds a folder, and every open a link in its place."""
    trial = Trial(tmp_path / "above" / "run")
    found = trial.found
    known = found.machine.trials[trial.id]
    sent = [
        artifact(found, known, "checkpoint_000000/model.txt"),
        checkpoint_tar(found, known, "checkpoint_000000"),
    ]
    folder = {"trial": trial.folder, "experiment": trial.run.layout.root}.get(place)
    folder = folder or tmp_path / "above"
    folder.rename(tmp_path / "secret")
    folder.symlink_to(tmp_path / "secret")
    monkeypatch.setattr(trial_folder, "check_folder", lambda folder: None)
    for download in sent:  # opened before, and sent now
        with pytest.raises(NotRegular):
            list(download.pieces)
    for read in (
        lambda: artifact(found, known, "checkpoint_000000/model.txt"),
        lambda: checkpoint_tar(found, known, "checkpoint_000000"),
        lambda: read_log(found, known, "stdout", 0),
        lambda: sizes_in(folder_of(found, known, "stdout")),
    ):
        with pytest.raises(NotRegular):
            read()
    of_trial = TrialFolder(location=found.location, local=trial.folder)
    with pytest.raises(NotRegular):
        read_curve(known, lambda _: of_trial, Wanted(metrics=["loss"]), [])
    assert artifacts_of(found, known, ["stdout"]).files == []
    trial.run.close()


@pytest.mark.parametrize("name", ["result.json", "../stdout", "stdout.rank-x", "", "a/b"])
def test_only_outputs_are_logs(trial: Trial, name: str) -> None:
    with pytest.raises(NotThere):
        trial.log(name, 0)


def test_a_log_is_read_piece_by_piece(trial: Trial) -> None:
    assert trial.log("stdout", -100) == {"size": 0, "offset": 0, "text": "", "next": 0, **SAME}
    data = ("Zeile ä\x1b[31m\n" * 100_000).encode()
    (trial.folder / "stdout").write_bytes(data)
    text, at = "", 0
    while at < len(data):
        piece = trial.log("stdout", at)
        assert piece["offset"] == at
        assert piece["next"] > at
        text, at = text + piece["text"], piece["next"]
    assert text == data.decode()
    assert trial.log("stdout", at) == {
        "size": len(data),
        "offset": at,
        "text": "",
        "next": at,
        **SAME,
    }


def test_the_end_of_a_log_begins_with_a_whole_character(trial: Trial) -> None:
    (trial.folder / "stdout").write_bytes("aäb".encode())
    assert trial.log("stdout", -2) == {"size": 4, "offset": 3, "text": "b", "next": 4, **SAME}
    assert trial.log("stdout", -3)["text"] == "äb"
    assert trial.log("stdout", -100)["text"] == "aäb"
    with open(trial.folder / "stdout", "ab") as file:
        file.write("ü".encode()[:1])
    assert trial.log("stdout", 4) == {"size": 5, "offset": 4, "text": "", "next": 4, **SAME}


@pytest.mark.parametrize("offset", [4, 10**9, 10**18 - 1])
def test_a_log_that_has_become_shorter_is_read_from_its_beginning_and_says_so(
    trial: Trial, offset: int
) -> None:
    (trial.folder / "stdout").write_bytes(b"new")
    found = {"size": 3, "offset": 0, "text": "new", "next": 3}
    assert trial.log("stdout", offset) == {**found, "is_anew": True}
    assert trial.log("stdout", -offset) == {**found, "is_anew": False}
    (trial.folder / "stdout").unlink()
    empty = {"size": 0, "offset": 0, "text": "", "next": 0}
    assert trial.log("stdout", offset) == {**empty, "is_anew": True}


def test_ranks_have_their_own_outputs(trial: Trial) -> None:
    for rank in (10, 2):
        (trial.folder / f"stderr.rank-{rank}").write_text("rank")
    (trial.folder / "stdout.rank-99999999999999999999").touch()
    logs = {one["name"]: one["label"] for one in trial.page()["logs"]}
    assert list(logs)[:4] == ["stdout", "stderr", "stderr.rank-2", "stderr.rank-10"]
    assert logs["stderr.rank-2"] == "stderr of rank 2"
    assert trial.log("stderr.rank-2", 0)["text"] == "rank"


def test_a_checkpoint_is_sent_as_an_archive(trial: Trial) -> None:
    folder = trial.folder / "checkpoint_000000"
    (folder / ("long" * 40)).mkdir()
    (folder / ("long" * 40) / "ä.bin").write_bytes(bytes(1_000))
    archive = trial.tar()
    assert archive.getnames() == [
        f"checkpoint_000000/{'long' * 40}/ä.bin",
        "checkpoint_000000/model.txt",
    ]
    model = archive.extractfile("checkpoint_000000/model.txt")
    assert model is not None
    assert model.read() == b"model of iteration 1"
    for dirname in ("checkpoint_000001", "..", "checkpoint_000000/..", ""):
        with pytest.raises(NotThere):
            trial.tar(dirname)


def test_a_link_in_a_checkpoint_is_refused(trial: Trial, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (trial.folder / "checkpoint_000000" / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(NotRegular):
        trial.tar()


def test_a_checkpoint_that_is_too_deep_is_refused_in_words(trial: Trial) -> None:
    deep = trial.folder / "checkpoint_000000"
    for _ in range(110):
        deep /= "a"
    deep.mkdir(parents=True)
    with pytest.raises(NotThere, match="too deep"):
        trial.tar()


def test_a_checkpoint_is_not_removed_while_it_is_sent(trial: Trial) -> None:
    found = trial.found
    sent = checkpoint_tar(found, found.machine.trials[trial.id], "checkpoint_000000").pieces
    next(sent)
    with pytest.raises(BeingRead):
        retire(trial.folder / "checkpoint_000000")
    assert b"model of iteration 1" in b"".join(sent)
    assert retire(trial.folder / "checkpoint_000000") is not None
    with pytest.raises(NotThere, match="neither here nor in storage"):
        trial.tar()


def test_why_each_checkpoint_is_kept(tmp_path: Path) -> None:
    config = CheckpointConfig(
        num_to_keep=2, checkpoint_score_attribute="loss", checkpoint_score_order="min"
    )
    trial = Trial(tmp_path / "run", checkpoint=config)
    for loss in (0.5, 0.7, 0.9):
        trial.run.report(trial.id, {"loss": loss}, checkpoint="committed")
    kept = [(one["iteration"], one["why_kept"]) for one in trial.page()["checkpoints"]]
    assert kept == [
        (4, "the newest"),
        (3, "number 2 by loss (min), 2 are kept"),
        (2, "number 1 by loss (min), 2 are kept"),
    ]
    newest = trial.page()["checkpoints"][0]
    assert (newest["here"], newest["stored"], newest["committed"]) == (True, False, True)
    trial.run.close()


def test_hostile_names_and_values_stay_data(tmp_path: Path) -> None:
    script = "<script>alert('x')</script>\x1b[2J"
    run = RecordedExperiment(
        tmp_path / script.replace("/", "_").replace("\x1b", ""),
        options={"tags": {script: script}},
    )
    trial_id = run.begin({script: script, "big": "x" * 3_000_000})
    run.report(trial_id, {script: 1.0, "text": "y" * 3_000_000, "many": list(range(50_000))})
    run.fail(trial_id, message=script * 100_000)
    run.folder(trial_id).mkdir(exist_ok=True)
    (run.folder(trial_id) / script.replace("/", "_")).touch()
    (run.folder(trial_id) / "plain <b>.txt").touch()
    found = find(str(run.layout.root), Settings.read({}), {})
    page = trial_plain(found, found.machine.trials[trial_id], now=run.now)
    assert len(json.dumps(page, allow_nan=False)) < 500_000
    assert page["config"][script] == script  # whole: the browser escapes it
    assert [one["path"] for one in page["artifacts"]] == ["plain <b>.txt"]
    run.close()
