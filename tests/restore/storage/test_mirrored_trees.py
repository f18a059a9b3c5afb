"""The tree on a machine of an experiment in a bucket: what its path means there and elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast import tune
from holdfast.cli import main
from holdfast.experiment.folder.settings import Settings
from holdfast.results.following import Followed
from holdfast.results.reading import find
from tests.rig import checker
from tests.rig.bench import Bench, epochs_of
from tests.rig.storage.bucket import Bucket
from tests.rig.storage.proxy import Proxy
from tests.rig.storage.s3_server import S3Server

pytestmark = [pytest.mark.process, pytest.mark.server, pytest.mark.rest]


@pytest.fixture
def bucket(moto: S3Server, bench: Bench, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """Also for commands of this process."""
    made = Bucket(moto, bench.folder.name, proxy)
    for name, text in made.environ.items():
        monkeypatch.setenv(name, text)
    return made


def killed(bench: Bench, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tree of a run that was killed in its third epoch, on the machine of the commands."""
    tree = bench.use(bucket, machine="first")
    monkeypatch.setenv("RAY_AIR_LOCAL_CACHE_DIR", str(tree.parent))
    script, gate = bench.held_in(3, prints=True)
    bucket.wait_for_committed(4)
    script.dies()
    gate.open()
    return tree


def resume_lines(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert main(list(words)) == 0
    lines = capsys.readouterr().out.splitlines()
    return [line.strip() for line in lines if line.startswith("  holdfast resume")]


def output_of(copy: Path) -> list[str]:
    return sorted(trial.joinpath("stdout").read_text() for trial in copy.glob("train_*"))


def test_it_is_resumed_in_the_bucket_and_nothing_is_run_twice(
    bench: Bench,
    bucket: Bucket,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tree = killed(bench, bucket, monkeypatch)
    uri = bucket.storage_path.replace("?", "/run?")
    line = f"holdfast resume '{uri}'   # finishes the rest"
    assert resume_lines(capsys, "ls", str(tree.parent)) == [f"{line} of run"]
    assert resume_lines(capsys, "show", str(tree)) == [line]
    restored = bench.restore(path=str(tree), prints=True).succeeds()
    assert epochs_of(restored) == [4, 4]
    assert f"{tree} is this machine's tree of {uri}: resuming that one" in restored.stderr
    assert bench.problems(bucket.download(bench.folder / "copy"), tensorboard=True) == []
    bench.use(bucket, machine="second")
    assert epochs_of(again := bench.restore().succeeds()) == [4, 4]
    assert "begun" not in again.stdout


def test_what_another_machine_has_finished_is_shown_and_not_run_again(
    bench: Bench,
    bucket: Bucket,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tree = killed(bench, bucket, monkeypatch)
    bench.use(bucket, machine="second")
    assert epochs_of(bench.restore(prints=True).succeeds()) == [4, 4]
    copy = bucket.download(bench.folder / "copy")
    # The output of the first machine, too, and each row once.
    printed = "".join(
        f"epoch {epoch} of attempt {attempt}\n" for epoch, attempt in enumerate((1, 1, 2, 2), 1)
    )
    assert output_of(copy) == [printed, printed]
    assert checker.check(copy, tensorboard=True) == []

    bench.use(bucket, machine="first")
    assert main(["show", str(tree)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("run: finished, last published to storage ")
    assert f"has a newer state than {tree}, and is shown here" in shown
    assert main(["show", bucket.storage_path.replace("?", "/run?")]) == 0
    assert capsys.readouterr().out.startswith("run: finished, last published to storage ")
    grid = tune.load(tree)
    assert list(grid.get_dataframe()["epoch"]) == [4, 4]
    settings, environ = Settings.read(os.environ), os.environ
    watched = Followed(lambda kept: find(str(tree), settings, environ, kept=kept))
    watched.look()
    assert watched.is_stored
    watched.close()
    assert resume_lines(capsys, "ls", str(tree.parent)) != []  # it asks no storage

    restored = bench.restore(path=str(tree)).succeeds()
    assert epochs_of(restored) == [4, 4]
    assert "begun" not in restored.stdout
    (aside,) = tree.parent.glob("run.before-*")
    assert f"what this machine had is kept in {aside}" in restored.stderr
    assert resume_lines(capsys, "ls", str(tree.parent)) == []
    assert main(["rm", "--yes", str(aside)]) == 0
    assert not aside.exists()


def test_without_the_storage_it_is_shown_and_not_resumed(
    bench: Bench,
    bucket: Bucket,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tree = killed(bench, bucket, monkeypatch)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "")
    (tree / ".mirror-at").write_text(
        (tree / ".mirror-at").read_text().replace("127.0.0.1:", "127.0.0.1:1")
    )
    assert main(["show", str(tree)]) == 0
    assert "may have a newer state, but did not answer" in capsys.readouterr().out
    assert main(["resume", str(tree)]) == 1
    told = capsys.readouterr().err
    assert "copy the folder elsewhere and resume the copy" in told
    assert main(["rm", str(tree)]) == 2
    assert "holdfast rm 's3://bucket/" in capsys.readouterr().err.replace(
        "-m holdfast", "holdfast"
    )
