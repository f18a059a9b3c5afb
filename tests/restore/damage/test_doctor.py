"""The doctor and real runs: while they run, after they were killed, when storage was away."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.cli import main
from tests.rig import checker
from tests.rig.bench import Bench, epochs_of
from tests.rig.storage.bucket import Bucket
from tests.rig.storage.proxy import Proxy
from tests.rig.storage.s3_server import S3Server

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def _own_environment(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_STORAGE", "RAY_AIR_LOCAL_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(bench.folder / "home"))


def forget_notes(bench: Bench) -> None:
    """Files that the test has removed are not expected any more."""
    (bench.folder / "bench" / "notes").unlink(missing_ok=True)


def test_a_run_is_looked_at_while_it_runs_and_continues_undisturbed(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    script, gate = bench.held_in(3)
    assert main(["doctor", "verify", "--json", str(bench.root)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [finding["kind"] for finding in report["findings"]] == ["in-use"]
    assert f"process {script.process.pid}" in report["findings"][0]["what"]
    assert report["looked_at"]["trials"] == 2
    assert main(["doctor", "repair", str(bench.root)]) == 1
    assert main(["doctor", "gc", "--yes", str(bench.root)]) == 1
    gate.open()
    script.succeeds()
    assert main(["doctor", str(bench.root)]) == 0
    assert bench.problems(tensorboard=True) == []


def test_what_a_killed_run_left_is_repaired_and_a_restore_resumes_silently(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.killed_in(3)
    # After a kill nothing is lost: files may lag a moment behind the journal, not more.
    assert main(["doctor", "verify", "--json", str(bench.root)]) == 0
    found = json.loads(capsys.readouterr().out)["findings"]
    assert {finding["kind"] for finding in found} <= {"rows-behind", "checkpoint-staged"}
    for trial in checker.fold(bench.root).trials.values():
        weights = bench.root / trial.dirname / "checkpoint_000001" / "weights"
        weights.write_bytes(weights.read_bytes() + b"more")
        (bench.root / trial.dirname / "result.json").write_text("{")
    with (bench.root / "journal" / "000000.log").open("ab") as file:
        file.write(b"torn")
    assert main(["doctor", str(bench.root)]) == 1
    assert main(["doctor", "repair", str(bench.root)]) == 0
    assert main(["doctor", "sync", str(bench.root)]) == 0
    told = capsys.readouterr().out
    assert told.count("checkpoint 1 dropped from the records") == 2
    assert main(["doctor", "gc", "--yes", str(bench.root)]) == 0
    assert main(["doctor", str(bench.root)]) == 0
    assert "NOTE" not in capsys.readouterr().out.split("Removed.")[1]
    forget_notes(bench)
    restored = bench.restore().succeeds()
    assert epochs_of(restored) == [4, 4]
    assert "lost" not in restored.stderr
    assert "no valid records" not in restored.stderr
    ran = [note["iteration"] for note in bench.notes() if note["what"] == "ran"]
    assert sorted(ran) == [2, 2, 3, 3, 4, 4]
    assert bench.problems(tensorboard=True) == []


def test_charts_that_a_kill_prevented_are_written_with_the_other_files(bench: Bench) -> None:
    """A trial's charts come after its rows: rows without charts do not mean that none are
    wanted."""
    bench.start().succeeds()
    for found in (*bench.root.glob("experiment_state-*"), *bench.root.glob("*/events.out.*")):
        found.unlink()
    for results in bench.root.glob("*/result.json"):
        results.write_bytes(results.read_bytes().splitlines(keepends=True)[0])
    assert main(["doctor", "repair", str(bench.root)]) == 0
    assert bench.problems(tensorboard=True) == []


@pytest.mark.server
def test_what_is_not_in_storage_is_brought_there_without_running_a_trial(
    bench: Bench, moto: S3Server, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = Bucket(moto, bench.folder.name, proxy)
    bench.use(bucket, machine="first")
    bench.environ["HOLDFAST_FLUSH_DEADLINE_S"] = "1"
    script, gate = bench.held_in(2, epochs=2, artifacts=True, sync_artifacts=True)
    proxy.break_off()
    gate.open()
    assert script.ends() == 1
    assert script.left() == []
    script.finish_reading()
    assert "is not in s3://" in script.stderr
    proxy.mend()
    for name, value in (*bucket.environ.items(), *bench.environ.items()):
        monkeypatch.setenv(name, value)
    place = bucket.storage_path.replace("?", "/run?")
    ran = len(bench.notes())
    # Files that the projector of a busy machine had not written within that second are written
    # here.
    assert main(["doctor", "repair", place]) == 1
    assert main(["doctor", "sync", place]) == 0
    assert len(bench.notes()) == ran
    copy = bucket.download(bench.folder / "bucket")
    assert bench.problems(copy, tensorboard=True) == []
    assert len(bucket.named("/artifact.txt")) == 2
    monkeypatch.setenv("RAY_AIR_LOCAL_CACHE_DIR", str(bench.folder / "another machine"))
    assert main(["doctor", place]) == 0


def test_an_experiment_that_was_moved_is_looked_at_where_it_is(bench: Bench) -> None:
    bench.killed_in(2)
    moved = Path(bench.folder / "elsewhere")
    bench.root.rename(moved)
    main(["doctor", "repair", str(moved)])
    assert main(["doctor", str(moved)]) == 0
