"""The command on real experiments: running, killed, in a bucket and resumed."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import main
from tests.command.commands import parsed
from tests.rig.bench import Bench, copy_of_live
from tests.rig.runs.patient import healthy
from tests.rig.script import UserScript
from tests.rig.storage.bucket import Bucket
from tests.rig.storage.proxy import Proxy
from tests.rig.storage.s3_server import S3Server

pytestmark = pytest.mark.process


def everything(capsys: pytest.CaptureFixture[str], path: str | Path) -> dict[str, Any]:
    """The output of each command about a run that waits before its third epoch, or was killed
    there."""
    listed: dict[str, Any]
    (listed,) = parsed(capsys, "ls", path)["experiments"]
    shown = parsed(capsys, "show", path)
    assert shown["state"] == listed["state"]
    assert [trial["status"] for trial in shown["trials"]] == ["RUNNING", "RUNNING"]
    assert [trial["iteration"] for trial in shown["trials"]] == [2, 2]
    assert parsed(capsys, "best", path)["config"] == shown["best"]["params"]
    assert main(["export", "--rows", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert 2 < len(lines) <= 5  # result.json may be a moment behind the journal
    return listed


def test_a_live_run_is_shown_as_it_is_and_left_alone(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    script, gate = bench.held_in(3)
    listed = everything(capsys, bench.root)
    assert listed["state"] == "live"
    assert f"process {script.process.pid}" in parsed(capsys, "show", bench.root)["holder"]
    assert parsed(capsys, "logs", bench.root, "0")["text"] == ""
    copy = copy_of_live(bench.root, bench.folder / "elsewhere" / "run")
    assert everything(capsys, copy)["state"] == "interrupted"  # no process holds its lock there
    gate.open()
    script.succeeds()
    assert bench.problems() == []
    (listed,) = parsed(capsys, "ls", bench.storage)["experiments"]
    assert (listed["state"], listed["trials"]) == ("finished", {"TERMINATED": 2})


def test_a_killed_run_is_interrupted_and_resume_resumes_it(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.killed_in(3)
    assert everything(capsys, bench.root)["state"] == "interrupted"
    command = bench.write("from holdfast.cli import main\nimport sys\nsys.exit(main())\n")
    script = bench.run(command, "resume", str(bench.root), "--json").succeeds()
    script.finish_reading()
    shown = json.loads(script.stdout[script.stdout.index('{\n "name"') :])
    assert (shown["state"], shown["restores"]) == ("finished", 1)
    assert [trial["iteration"] for trial in shown["trials"]] == [4, 4]
    assert bench.problems() == []


def test_a_run_that_was_stopped_says_how_to_continue_and_failures_are_reported(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    script, _ = bench.held_in(3, fail=[[1, 2]], failing=1, max_failures=1)
    script.signal(signal.SIGINT)
    script.ends()
    assert main(["show", str(bench.root)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("run: interrupted\n")
    assert f"holdfast resume {bench.root}   # finishes the rest" in out
    assert main(["logs", str(bench.root), "1", "--error"]) == 0
    assert "RuntimeError: trial 1 cannot do epoch 2" in capsys.readouterr().out


def test_a_live_run_is_watched_until_it_ends_and_cannot_be_removed(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    script, gate = bench.held_in(3)
    text = "from holdfast.cli import main\nimport sys\nsys.exit(main())\n"
    command = bench.write(text, "cli.py")
    reader = bench.run(command, "show", str(bench.root), "--watch", "--interval", "0.05")
    reader.said("run: live, process", stream="stdout")
    assert main(["rm", "--yes", str(bench.root)]) == 1
    assert f"process {script.process.pid}" in capsys.readouterr().err
    gate.open()
    script.succeeds()
    reader.succeeds()
    reader.finish_reading()
    assert reader.stdout.split("\n\n")[-2].startswith("run: finished\n  2 finished")
    assert bench.problems() == []
    assert main(["rm", "--yes", str(bench.root)]) == 0
    assert list(bench.storage.iterdir()) == []


def following(
    bench: Bench, place: str | Path, *words: str, interval_s: float = 0.05
) -> UserScript:
    """`holdfast logs --follow` of trial 0, which begins with two lines of its first attempt.

    An interrupt between an open and its `with` leaves the file to its finalizer, which warns.
    """
    text = "import sys, warnings\nfrom holdfast.cli import main\n"
    text += "warnings.simplefilter('ignore', ResourceWarning)\nsys.exit(main())\n"
    asked = ("logs", str(place), "0", "--follow", "--interval", str(interval_s), *words)
    reader = bench.run(bench.write(text, "cli.py"), *asked)
    reader.said("epoch 2 of attempt 1", stream="stdout")
    return reader


def test_a_log_is_followed_through_a_kill_and_a_restore_until_the_trial_has_ended(
    bench: Bench,
) -> None:
    script, gate = bench.held_in(3, prints=True)
    reader = following(bench, bench.root, "--json")
    other = following(bench, bench.root)
    other.signal(signal.SIGINT)
    assert other.ends() == 130
    assert (other.stdout.count("\n"), other.stderr) == (2, "")
    script.dies()
    reader.said("no process runs the experiment: waiting for a restore")
    gate.open()
    bench.restore(prints=True).succeeds()
    reader.succeeds()
    reader.finish_reading()
    lines = [json.loads(line) for line in reader.stdout.splitlines()]
    assert [line["line"] for line in lines] == [
        f"epoch {epoch} of attempt {1 + (epoch > 2)}" for epoch in range(1, 5)
    ]
    assert {line["trial_id"][-6:] for line in lines} == {"_00000"}


@pytest.fixture
def bucket(moto: S3Server, bench: Bench, proxy: Proxy) -> Bucket:
    made = Bucket(moto, bench.folder.name, proxy)
    bench.use(made, machine="first")
    return made


@pytest.mark.server
def test_a_live_run_is_seen_from_another_machine_in_its_bucket(
    bench: Bench,
    bucket: Bucket,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in bucket.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RAY_AIR_LOCAL_CACHE_DIR", str(tmp_path / "second"))
    base, _, query = bucket.storage_path.partition("?")
    run = f"{base}/run?{query}"
    script, gate = bench.held_in(3, prints=True)
    bucket.wait_for_committed(4)
    bench.use(bucket, machine="third")
    reader = following(bench, run, interval_s=1)
    before = set(bucket.listing())
    listed = everything(capsys, run)
    assert (listed["state"], listed["name"]) == ("live", "run")
    assert listed["size_bytes"] > 0
    assert {e["state"] for e in parsed(capsys, "ls", bucket.storage_path)["experiments"]} == {
        "live"
    }
    assert not (tmp_path / "second").exists()
    assert not (bench.folder / "third").exists()
    assert {key for key in before if not key.startswith("run/")} == set()
    gate.open()
    script.succeeds()
    assert script.left() == []
    assert reader.succeeds().stdout.splitlines() == [
        f"epoch {n} of attempt 1" for n in range(1, 5)
    ]
    shown = parsed(capsys, "show", run)
    assert (shown["state"], shown["counts"]) == ("finished", {"TERMINATED": 2})
    assert parsed(capsys, "logs", run, "1")["text"].startswith("epoch 1 of attempt 1\n")
    assert main(["logs", run, "1", "--rank", "3"]) == 2
    assert "Its output files: stderr, stdout" in capsys.readouterr().err
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("RAY_AIR_LOCAL_CACHE_DIR", str(bench.folder / "first"))
    assert parsed(capsys, "show", run)["path"].startswith("s3://")


@pytest.mark.server
def test_a_damaged_head_is_skipped_as_a_restore_does(
    bucket: Bucket, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    healthy(tmp_path / "run")
    (tmp_path / "run" / "head.json").write_text('{"epoch": ')
    bucket.upload(tmp_path / "run")
    base, _, query = bucket.uri.partition("?")
    shown = parsed(capsys, "show", f"{base}/run?{query}")
    assert shown["counts"] == {"TERMINATED": 2, "ERROR": 1}


@pytest.mark.server
def test_a_bucket_that_does_not_answer_or_does_not_exist_is_reported(
    bucket: Bucket, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = bucket.server.uri("no-such-bucket/results", secret_key="s3cr3t")
    assert main(["ls", nowhere]) == 2
    out, err = capsys.readouterr()
    assert "there is no bucket 'no-such-bucket' for s3://no-such-bucket/results" in err
    assert "s3cr3t" not in out + err
    assert main(["show", bucket.server.uri("bucket/nothing-here")]) == 2
    assert "there is no experiment at s3://bucket/nothing-here" in capsys.readouterr().err
