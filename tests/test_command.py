"""The commands that read experiments: ended, interrupted, damaged, large; and completion."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import pickle
import pty
import re
import shutil
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import main
from holdfast.experiment.folder.listed_place import note_listed
from holdfast.experiment.folder.nodes_file import NodeBeat, NodesFile
from holdfast.scheduler.events import EndOrdered, Exited, NodeLeaving, NodeLeft, Resumed
from holdfast.syncer.journal.journal import MAGIC
from holdfast.syncer.uploader.lock import ExperimentLock
from holdfast.trial.resources import NodeKind
from holdfast.trial.search_space.description import describe
from tests.rig.patient import healthy
from tests.rig.recorded import RecordedExperiment


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three trials that have ended, one of them failed; and the same before the end."""
    place = tmp_path_factory.mktemp("store")
    healthy(place / "ended", metric="loss", mode="min")
    healthy(place / "cut", ended=False, metric="loss", mode="min")
    return place


@pytest.fixture
def store(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Every command leaves it unchanged, byte by byte."""
    for name in ("RAY_STORAGE", "RAY_AIR_LOCAL_CACHE_DIR", "HOLDFAST_ROOT", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    place = Path(shutil.copytree(template, tmp_path / "store"))
    yield place
    assert not list(place.rglob("*.tmp*"))


def stamps(root: Path) -> dict[str, tuple[int, int]]:
    return {str(p): (p.lstat().st_mtime_ns, p.lstat().st_size) for p in root.rglob("*")}


def told(capsys: pytest.CaptureFixture[str], *words: str | Path, code: int = 0) -> str:
    assert main([*map(str, words)]) == code
    return capsys.readouterr().out


def parsed(capsys: pytest.CaptureFixture[str], *words: str | Path, code: int = 0) -> Any:
    return json.loads(told(capsys, *words, "--json", code=code))


def test_ls_tells_each_experiment_how_it_stands(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = ExperimentLock(store / "cut" / ".lock")
    try:
        lines = told(capsys, "ls", store).splitlines()
        assert lines[0].split() == ["NAME", "STATE", "TRIALS", "BEST", "AGE", "SIZE"]
        assert lines[1].startswith(
            "cut    live         1 finished, 1 failed, 1 running  loss=0.1 (d2a"
        )
        assert lines[2].startswith("ended  interrupted  2 finished, 1 failed ")
    finally:
        lock.release()
    found = parsed(capsys, "ls", store)
    assert found["path"] == str(store)
    first = found["experiments"][0]
    assert (first["name"], first["state"]) == ("cut", "interrupted")
    assert first["trials"] == {"RUNNING": 1, "TERMINATED": 1, "ERROR": 1}
    assert first["best"] == {
        "trial_id": "d2a66_00000", "metric": "loss", "mode": "min", "value": 0.1,
    }  # fmt: skip
    assert first["problem"] == "ValueError: oh no, again"
    files = [path for path in (store / "cut").rglob("*") if path.is_file()]
    assert first["size_bytes"] == sum(path.stat().st_size for path in files)
    (only,) = parsed(capsys, "ls", "--quick", store / "ended")["experiments"]
    assert (only["name"], only["size_bytes"]) == ("ended", None)


def test_ls_and_show_tell_the_tags_and_ls_lists_the_runs_that_have_one(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tags = {"data": "v3", "by": "ana\x1b[2J"}
    RecordedExperiment(store / "tagged", options={"tags": tags}).ends()
    listed = told(capsys, "ls", store).splitlines()
    assert listed[0].split()[-1] == "TAGS"
    assert listed[3].endswith("data=v3 by=ana\\x1b[2J")
    (only,) = parsed(capsys, "ls", "--tag", "data=v3", store)["experiments"]
    assert (only["name"], only["tags"]) == ("tagged", tags)
    assert parsed(capsys, "ls", "--tag", "data=v3", "--tag", "by=me", store)["experiments"] == []
    assert "  tags data=v3 by=ana\\x1b[2J" in told(capsys, "show", store / "tagged").splitlines()
    assert parsed(capsys, "show", store / "tagged")["tags"] == tags
    assert parsed(capsys, "show", store / "ended")["tags"] == {}
    with pytest.raises(SystemExit):
        main(["ls", "--tag", "v3", str(store)])
    assert "'v3' is not NAME=VALUE" in capsys.readouterr().err


def test_ls_looks_where_fit_keeps_results(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_STORAGE", str(store))
    assert len(parsed(capsys, "ls")["experiments"]) == 2
    monkeypatch.setenv("RAY_STORAGE", str(store / "cut" / "journal"))
    assert told(capsys, "ls").startswith("There is no experiment in ")


def test_a_damaged_experiment_hides_no_other_and_names_the_doctor(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (store / "cut" / "journal" / "000000.log").write_bytes(b"no journal at all")
    out = told(capsys, "ls", store, code=1)
    assert "cut    unreadable" in out
    assert f"holdfast doctor {store}/cut" in out
    assert "ended  interrupted" in out
    assert main(["show", str(store / "cut")]) == 1
    assert "does not begin as a journal does" in capsys.readouterr().err


def with_crc(content: bytes) -> bytes:
    """A snapshot with this content, whose checksum is right."""
    body = content.partition(b'",\n')[2] if content.startswith(b'{"crc32"') else content
    return b'{"crc32": "%08x",\n' % zlib.crc32(body) + body


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (lambda data: data[:-100], "its CRC-32 does not match"),
        (lambda data: with_crc(data.replace(b'"RUNNING"', b'"ROWING"')), "status"),
        (
            lambda data: with_crc(data.replace(b'"trials": [{', b'"trials": 7, "x": [{')),
            "does not know: 'x'",
        ),
        (
            lambda data: with_crc(b'"format": 1, "machine": null}'),
            "the snapshot: experiment_id is missing",
        ),
        (lambda data: with_crc(b'"x": ' + b"[" * 100_000), "nested too deeply"),
        (lambda data: with_crc(b"no JSON at all"), "not JSON"),
    ],
    ids=["wrong CRC", "a word", "a number", "nothing", "nested", "text"],
)
def test_a_bad_snapshot_hides_no_experiment_and_its_own_is_read_from_the_journal(
    store: Path,
    capsys: pytest.CaptureFixture[str],
    write: Callable[[bytes], bytes],
    reason: str,
) -> None:
    sound = parsed(capsys, "ls", store)["experiments"]
    (snapshot,) = (store / "cut").glob("experiment_state-*.json")
    snapshot.write_bytes(write(snapshot.read_bytes()))
    cut, ended = parsed(capsys, "ls", store)["experiments"]
    (notice,) = cut.pop("notices")
    assert notice.startswith(f"{snapshot.name} is not used: ")
    assert reason in notice
    for entry in (cut, *sound):
        del entry["size_bytes"]
    del sound[0]["notices"]
    assert cut == sound[0]
    del ended["size_bytes"]
    assert ended == sound[1]
    out = told(capsys, "ls", store)
    assert "cut    interrupted" in out
    assert "ended  interrupted" in out
    assert f"{snapshot.name} is not used: " in out


@pytest.mark.parametrize("written", [None, b"", MAGIC, MAGIC + bytes(5)])
def test_a_run_that_ended_before_its_first_record_is_not_an_unreadable_one(
    store: Path, capsys: pytest.CaptureFixture[str], written: bytes | None
) -> None:
    journal = store / "early" / "journal"
    journal.parent.mkdir()
    if written is None:
        (journal.parent / ".lock").touch()
    else:
        journal.mkdir()
        (journal / "000000.log").write_bytes(written)
    out = told(capsys, "ls", store)
    assert "early  not begun" in out
    assert "early ended before its first record" in out.replace(f"{store}/", "")
    assert "doctor" not in out
    assert main(["show", str(store / "early")]) == 2
    assert "Start the script again" in capsys.readouterr().err
    lock = ExperimentLock(store / "early" / ".lock")
    assert "early  live" in told(capsys, "ls", store)
    lock.release()
    removed = told(capsys, "rm", "--yes", store / "early")
    assert "early  not begun" in removed
    assert "cannot be read" not in removed
    assert not (store / "early").exists()


def test_a_torn_journal_and_a_damaged_snapshot_are_read_as_far_as_they_go(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = store / "ended" / "journal" / "000000.log"
    journal.write_bytes(journal.read_bytes()[:-7])
    (snapshot,) = (store / "ended").glob("experiment_state-*.json")
    snapshot.write_bytes(snapshot.read_bytes()[:-100])
    shown = parsed(capsys, "show", store / "ended")
    assert "is not used" in shown["notices"][0]
    assert len(shown["trials"]) == 3


def test_what_of_a_journal_lies_behind_a_damage_is_reported(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = store / "cut" / "journal" / "000000.log"
    (snapshot,) = (store / "cut").glob("experiment_state-*.json")
    snapshot.unlink()
    data = bytearray(journal.read_bytes())
    middle = data.index(b"oh no")  # inside a record
    data[middle] ^= 1
    journal.write_bytes(data)
    (notice,) = parsed(capsys, "show", store / "cut")["notices"]
    assert re.search(r"000000.log: what follows offset \d+ cannot be read \(.*kB\)", notice)
    assert "run holdfast doctor" in told(capsys, "show", store / "cut")
    journal.write_bytes(data[:middle])
    (notice,) = parsed(capsys, "show", store / "cut")["notices"]
    assert "000000.log ends inside a record" in notice


def test_show_tells_the_best_the_trials_and_what_failed_with_its_logs(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = told(capsys, "show", store / "cut")
    (folder,) = (store / "cut").glob("train_d2a66_00002_*")
    assert "cut: interrupted\n" in out
    assert "best loss=0.1 train_d2a66_00000" in out
    assert "train_d2a66_00001  was RUNNING ↻1" in out
    assert "d2a66_00002 failed at train.py:7 in train: ValueError: oh no, again\n" in out
    assert f"  {folder}/error.txt\n  {folder}/stdout\n  {folder}/stderr\n" in out
    assert f"  holdfast resume {store}/cut   # finishes the rest\n" in out
    (next_command,) = [line for line in out.splitlines() if "-errored" in line]
    assert (
        f"resume --restart-errored {store}/cut   # finishes the rest, and restarts the failed"
        in (next_command)
    )
    assert "2 more" in told(capsys, "show", "-n", "1", store / "cut")


def test_show_resumes_failed_trials_that_have_checkpoints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = RecordedExperiment(tmp_path / "run")
    trial = run.begin({"lr": 0.1})
    run.report(trial, {"loss": 1.0}, checkpoint="committed")
    run.fail(trial)
    run.start(trial)
    run.fail(trial)
    run.ends()
    out = told(capsys, "show", tmp_path / "run")
    assert f"resume --resume-errored {tmp_path}/run   " in out
    assert "resumes the failed trials from their checkpoints" in out


def test_show_has_everything_for_scripts_and_no_nan(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = stamps(store)
    shown = parsed(capsys, "show", store / "cut")
    assert stamps(store) == before
    assert {"name", "path", "state", "best", "trials", "counts", "varied", "notices"} <= set(shown)
    second = shown["trials"][1]
    assert second["trial_id"] == "d2a66_00001"
    assert second["metrics"]["loss"] is None  # it was NaN
    assert second["params"] == {"lr": 0.2, "kind": "a"}
    assert shown["trials"][2]["error"]["final"] is True
    assert shown["varied"] == ["lr"]


def stopped(root: Path, *, planned: int) -> None:
    """An experiment after Ctrl-C: of three trials with one cause two failed, and one is
    unfinished."""
    made = RecordedExperiment(root, options={"trials": planned}, num_samples=planned)
    for number in range(3):
        trial_id = made.begin({"n": number})
        if number < 2:
            made.fail(trial_id, message=f"loss is {number}")
    made.add(EndOrdered(reason="interrupt"))
    made.add(Exited(trial_id=trial_id, attempt=1, cause="ended"))
    made.ends()


def test_what_a_plain_resume_finishes_is_interrupted_though_trials_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped(tmp_path / "run", planned=5)
    out = told(capsys, "ls", tmp_path)
    assert "run   interrupted  2 failed, 1 interrupted, 2 not created yet" in out
    (found,) = parsed(capsys, "ls", tmp_path)["experiments"]
    assert found["not_created"] == 2
    out = told(capsys, "show", tmp_path / "run")
    assert f"holdfast resume {tmp_path}/run   # finishes the rest\n" in out
    assert "2 failed, 1 interrupted, 2 not created yet; train, began" in out


def on_nodes(root: Path) -> RecordedExperiment:
    """A run on a cluster: a trial on node a runs, one on b failed, and b has left."""
    run = RecordedExperiment(root, offer=[NodeKind(name="gpu", most=4)], num_samples=3)
    run.joins("a", {"CPU": 2, "GPU": 1}, hostname="a.cluster", address="10.0.0.1")
    first = run.begin()
    run.begin()
    run.joins("b", {"CPU": 8}, hostname="gpu7", address="10.0.0.2")
    third = run.begin()
    run.report(first, {"loss": 1.0})
    run.fail(third)
    run.add(NodeLeft(node="b", cause="it sent no beat for 10 s"))
    run.write_files()
    return run


def test_show_names_the_node_of_each_trial_and_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    on_nodes(tmp_path / "run").close()
    out = told(capsys, "show", tmp_path / "run")
    assert re.search(r"^trial +status +node +iter ", out, re.M)
    assert re.search(r"^train_d2a66_00000 +was RUNNING +a +1 ", out, re.M)
    assert re.search(r"^train_d2a66_00002 +ERROR +b$", out, re.M)
    assert "d2a66_00002 failed on node b (host host) at train.py:7 in train: ValueError" in out
    first, _, third = parsed(capsys, "show", tmp_path / "run")["trials"]
    assert (first["node"], first["nodes"], third["node"]) == ("a", ["a"], "b")
    assert (third["error"]["node"], third["error"]["hostname"]) == ("b", "host")
    (row,) = csv.DictReader(io.StringIO(told(capsys, "export", "--rows", tmp_path / "run")))
    assert row["node_name"] == "a"


def test_nodes_says_what_is_held_where_and_why_a_node_has_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = on_nodes(tmp_path / "run")
    run.joins("b-2", {"CPU": 8, "memory": 8e9}, hostname="gpu7")
    run.add(NodeLeaving(node="a", seconds=30.0, why="its time limit"))
    run.close()
    now = time.time()
    beat = NodeBeat(node="b-2", at=now - 90, disk_free_bytes=120_000_000_000)
    assert NodesFile(run.layout).write([beat])
    lock = ExperimentLock(run.layout.lock)
    try:
        lines = told(capsys, "nodes", tmp_path / "run").splitlines()
        found = parsed(capsys, "nodes", tmp_path / "run")
    finally:
        lock.release()
    assert lines[1] == "  2 of 4 nodes"
    cells = [re.split(r"  +", line) for line in lines[2:6]]
    assert cells[0][:5] == ["NODE", "STATE", "HOLDS", "TRIALS", "JOINED"]
    assert cells[1][:4] == ["a", "leaving", "CPU 2/2, GPU 0/1", "2"]
    assert cells[1][-2:] == ["a.cluster", "10.0.0.1"]
    assert cells[2][:3] == ["b-2", "here", "CPU 0/8"]
    assert re.fullmatch(r"1m 3\ds ago", cells[2][-3])
    assert cells[2][-2:] == ["120.0 GB", "gpu7"]
    assert cells[3][:2] == ["b", "left"]
    assert lines[6] == "a leaves: its time limit"
    assert re.fullmatch(r"b has left .* ago: it sent no beat for 10 s", lines[7])
    assert len(lines) == 8
    names = [(node["name"], node["state"], node["trials"]) for node in found["nodes"]]
    trials = ["d2a66_00000", "d2a66_00001"]
    assert names == [("a", "leaving", trials), ("b-2", "here", []), ("b", "left", [])]
    assert found["nodes"][0]["held"] == {"CPU": 2}
    assert found["nodes"][1]["heard_at"] == beat.at
    assert (found["is_cluster"], found["most"]) == (True, 4)


def test_a_run_that_was_killed_has_no_nodes_and_a_restore_begins_without_those_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = on_nodes(tmp_path / "run")
    out = told(capsys, "nodes", tmp_path / "run")
    assert "run: interrupted\n  0 of 4 nodes\n" in out
    assert "a has left" not in out
    assert "\nb has left " in out
    run.add(Resumed(epoch=2, capacity={}, offer=[NodeKind(name="gpu", most=1)]))
    run.joins("a-2", {"CPU": 2})
    run.close()
    lock = ExperimentLock(run.layout.lock)
    try:
        out = told(capsys, "nodes", tmp_path / "run")
        every = told(capsys, "nodes", "--all", tmp_path / "run")
    finally:
        lock.release()
    assert "\n  1 of 1 node\n" in out
    assert out.endswith("... 2 more have left (--all shows them)\n")
    assert "\nb has left " in every
    assert "more have left" not in every


def test_on_one_machine_there_are_no_nodes(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = told(capsys, "nodes", store / "cut")
    assert out.endswith("  all its trials run on one machine: it has no nodes\n")
    found = parsed(capsys, "nodes", store / "cut")
    assert (found["is_cluster"], found["most"], found["nodes"]) == (False, None, [])


def test_failures_of_one_cause_are_shown_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped(tmp_path / "run", planned=5)
    folders = sorted(path for path in (tmp_path / "run").iterdir() if path.name[:5] == "train")
    (folders[0] / "stderr").touch()
    out = told(capsys, "show", tmp_path / "run")
    (failed,) = re.findall(r"^d2a66.* failed.*$", out, re.M)
    assert failed.endswith("ValueError: loss is 0 (and 1 more trial)")
    assert f"  {folders[0]}/stderr (empty)\n" in out
    (folders[0] / "error.txt").write_text("")  # by a full disk
    out = told(capsys, "show", tmp_path / "run")
    (marked,) = (line for line in out.splitlines() if "error.txt (empty; " in line)
    assert marked.endswith(f"holdfast doctor repair {tmp_path}/run writes it)")
    assert parsed(capsys, "show", tmp_path / "run")["not_created"] == 2


def test_logs_are_found_by_id_number_or_a_part_of_it(
    store: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    (folder,) = (store / "ended").glob("train_d2a66_00000_*")
    (folder / "stdout").write_bytes(b"one\ntwo\nthree")
    (folder / "stderr.rank-1").write_bytes(b"of rank 1\n")
    path = str(store / "ended")
    for trial in ("d2a66_00000", "0", "00000", "train_d2a66_00000", folder.name):
        assert main(["logs", path, trial]) == 0
        assert capsysbinary.readouterr().out == b"one\ntwo\nthree"
    (folder / "stderr").touch()
    assert main(["logs", path, "0", "--stderr"]) == 0
    assert b"stderr is empty: trial d2a66_00000 has written" in capsysbinary.readouterr().err
    assert main(["logs", path, "0", "--tail", "2"]) == 0
    assert capsysbinary.readouterr().out == b"two\nthree"
    assert main(["logs", path, "0", "--stderr", "--rank", "1"]) == 0
    assert capsysbinary.readouterr().out == b"of rank 1\n"
    assert main(["logs", path, "0", "--path"]) == 0
    assert capsysbinary.readouterr().out == f"{folder}/stdout\n".encode()
    assert main(["logs", path, "2", "--error"]) == 0
    assert b"ValueError: oh no, again" in capsysbinary.readouterr().out
    assert main(["logs", path, "0", "--follow", "--tail", "2"]) == 0
    assert capsysbinary.readouterr().out == b"two\nthree"
    assert main(["logs", path, "0", "--follow", "--json"]) == 0
    lines = capsysbinary.readouterr().out.splitlines()
    assert [json.loads(line)["line"] for line in lines] == ["one", "two", "three"]


def test_what_has_no_log_and_who_is_not_a_trial_is_reported(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(store / "ended")
    assert main(["logs", path, "d2a66"]) == 2
    assert "matches several: d2a66_00000, d2a66_00001" in capsys.readouterr().err
    assert main(["logs", path, "77"]) == 2
    assert "there is no '77'" in capsys.readouterr().err
    assert main(["logs", path, "2"]) == 2
    err = capsys.readouterr().err
    assert "trial d2a66_00002 has no file 'stdout'" in err
    assert "Its output files: error.txt" in err
    assert main(["logs", path, "2", "--follow", "--json"]) == 2
    assert "has no file 'stdout'" in json.loads(capsys.readouterr().out.strip("\n"))["error"]


def test_best_is_a_config_that_a_program_can_read(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["best", str(store / "ended")]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"lr": 0.1, "kind": "a"}
    assert printed.err == "holdfast: loss=0.1, trial d2a66_00000 at iteration 5\n"
    found = parsed(capsys, "best", "--mode", "max", "--scope", "all", store / "ended")
    assert (found["trial_id"], found["value"], found["scope"]) == ("d2a66_00000", 1.0, "all")
    assert (found["iteration"], found["metrics"]["loss"]) == (1, 1.0)
    assert main(["best", str(store / "ended"), "--metric", "nothing"]) == 1
    assert "no trial reported a number 'nothing'" in capsys.readouterr().err


def test_of_a_best_row_the_checkpoint_is_its_own_or_the_newest_before_it(
    store: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Trial 0 has a checkpoint of each iteration but the fifth; the newest is of the fourth."""
    best = ("best", "--mode", "max", "--scope", "all", store / "ended")
    found = parsed(capsys, *best)
    checkpoint = f"{found['folder']}/checkpoint_000000"
    assert (found["checkpoint"], found["checkpoint_iteration"]) == (checkpoint, 1)
    assert caplog.text == ""
    found = parsed(capsys, *best, "--metric", "training_iteration")
    checkpoint = f"{found['folder']}/checkpoint_000003"
    assert (found["iteration"], found["checkpoint"]) == (5, checkpoint)
    assert found["checkpoint_iteration"] == 4
    assert "`checkpoint` is that of iteration 4" in caplog.text
    newest = parsed(capsys, *best[:3], store / "ended")
    assert (newest["scope"], newest["iteration"], newest["checkpoint_iteration"]) == ("last", 5, 5)


def test_a_table_is_written_as_csv_parquet_and_json(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from pyarrow import csv, parquet

    path = store / "ended"
    (tmp_path / "stdout.csv").write_text(told(capsys, "export", path))
    table = csv.read_csv(tmp_path / "stdout.csv")
    assert table["config/lr"].to_pylist() == pytest.approx([0.1, 0.2, 0.3])
    out = tmp_path / "rows.parquet"
    done = parsed(capsys, "export", path, "--rows", "-o", out)
    assert (done["format"], done["lines"]) == ("parquet", 10)
    assert parquet.read_table(out)["nested/a"].to_pylist()[0] == "[1, 0]"
    assert main(["export", str(path), "-o", str(out)]) == 2
    assert "--force to replace it" in capsys.readouterr().err
    told(capsys, "export", path, "-o", out, "--format", "json", "--force", "--metric", "loss")
    assert [line["loss"] for line in json.loads(out.read_text())] == [0.1, 0.2]
    every = told(capsys, "export", path, "--rows", "--format", "json")
    assert "NaN" not in every
    assert [line["loss"] for line in json.loads(every)].count(None) == 3  # they were NaN
    assert main(["export", str(path), "-o", str(tmp_path / "x.xls")]) == 2
    assert "pass --format" in capsys.readouterr().err
    assert main(["export", str(path), "-o", str(tmp_path / "new" / "x.csv")]) == 2
    assert f"there is no directory {tmp_path}/new" in capsys.readouterr().err
    assert main(["export", str(path), "--optuna", "sqlite:///x.db"]) == 1
    assert "pip install 'optuna>=" in capsys.readouterr().err
    assert not list(tmp_path.glob("*.parquet.*"))


class Trap:
    """Reports that it was unpickled."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, ("unpickled",)


def test_nothing_is_unpickled_locked_or_written(
    store: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    path = store / "ended"
    (path / "tuner.pkl").write_bytes(pickle.dumps(Trap()))
    held = ExperimentLock(path / ".lock")
    before = stamps(path)
    try:
        for words in (["ls"], ["show"], ["best"], ["export"], ["export", "--rows"]):
            told(capsys, *words, path)
        told(capsys, "logs", path, "2", "--error")
    finally:
        held.release()
    assert stamps(path) == before
    assert not Path("unpickled").exists()


def test_a_directory_that_no_one_may_write_is_read(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (store / "ended").chmod(0o500)
    try:
        assert parsed(capsys, "show", store / "ended")["counts"] == {"TERMINATED": 2, "ERROR": 1}
    finally:
        (store / "ended").chmod(0o700)


def test_a_reader_that_goes_away_is_not_an_error(store: Path) -> None:
    line = f'"{sys.executable}" -m holdfast show "{store}/ended" --json | head -n 1; '
    done = subprocess.run(
        ["bash", "-c", f'{line} exit "${{PIPESTATUS[0]}}"'],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "{\n"
    assert done.stderr == ""


@pytest.mark.parametrize("words", [("export", "ended"), ("completion", "fish")])
def test_a_pipe_that_is_closed_ends_it_quietly(store: Path, words: tuple[str, str]) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    # The word is a folder for one command, and a shell for the other.
    command = [sys.executable, "-m", "holdfast", *words]
    with os.fdopen(writes, "wb") as out:
        done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, cwd=store, check=False)
    assert (done.returncode, done.stderr) == (141, b"")


def in_terminal(words: Sequence[str], columns: int) -> str:
    """The command's output to a terminal with this many columns, without colours."""
    ours, theirs = pty.openpty()
    environ = {**os.environ, "COLUMNS": str(columns), "LINES": "40", "NO_COLOR": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast", *words], stdout=theirs, env=environ
    ) as process:
        os.close(theirs)
        parts = []
        while part := _read(ours):
            parts.append(part)
        process.wait()
    os.close(ours)
    return b"".join(parts).decode().replace("\r", "")


def test_an_export_steers_no_terminal_and_keeps_every_byte_for_a_pipe(
    store: Path, tmp_path: Path
) -> None:
    path = tmp_path / "forged"
    shutil.copytree(store / "ended", path)
    for rows in path.glob("*/result.json"):
        rows.write_text(rows.read_text().replace('"trial_id": "', '"trial_id": "\\u001b[2J'))
    words = ["export", str(path), "--rows"]
    command = [sys.executable, "-m", "holdfast", *words]
    piped = subprocess.run(command, capture_output=True, check=True).stdout
    assert b"\x1b[2J" in piped
    shown = in_terminal(words, 200)
    assert "\\x1b[2J" in shown
    assert "\x1b" not in shown


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:  # Linux says so when the last writer has closed a terminal
        return b""


def test_a_narrow_terminal_gets_as_many_columns_as_fit(store: Path) -> None:
    out = re.sub(r"\x1b\[[0-9;]*m", "", in_terminal(["ls", str(store)], 50))
    header, *lines = out.splitlines()[:3]  # a command to paste is not cut
    assert header.split() == ["NAME", "STATE", "BEST"]
    assert all(len(line) <= 50 for line in lines)
    assert "... SIZE, AGE, TRIALS do not fit here" in out


def test_resume_without_a_usable_trainable_says_what_to_give(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["resume", str(store / "cut"), "--trainable", "train"]) == 2
    assert "--trainable must be module:name" in capsys.readouterr().err
    assert main(["resume", str(store / "cut"), "--trainable", "nowhere:train"]) == 2
    assert "No module named 'nowhere'" in capsys.readouterr().err
    assert main(["resume", str(store / "nothing"), "--json"]) == 2
    assert "nothing" in json.loads(capsys.readouterr().out)["error"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed_for_each_shell(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "holdfast" in told(capsys, "completion", shell)


def completed(line: str, where: Path) -> list[str]:
    """The answer to the shell at the end of a line."""
    environ = {
        **os.environ,
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(where / "answer"),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    command = [sys.executable, "-m", "holdfast"]
    subprocess.run(command, cwd=where, env=environ, check=True)
    return (where / "answer").read_text().split("\n")


def test_commands_experiments_and_trials_are_completed(store: Path) -> None:
    assert [word.strip() for word in completed("holdfast sh", store)] == ["show"]
    assert {word.strip() for word in completed("holdfast show ", store)} >= {"cut", "ended"}
    found = [word.strip() for word in completed("holdfast logs ended d2a66_0000", store)]
    assert found == ["d2a66_00000", "d2a66_00001", "d2a66_00002"]
    assert [word.strip() for word in completed("holdfast logs ended 0 --st", store)] == [
        "--stderr"
    ]


def test_names_from_elsewhere_are_completed(store: Path, tmp_path: Path) -> None:
    def words(line: str) -> list[str]:
        return [word.strip() for word in completed(line, tmp_path / "elsewhere") if word]

    (tmp_path / "elsewhere").mkdir()
    assert words("holdfast show en") == []
    note_listed(os.environ, str(store), ["cut", "ended"])
    assert words("holdfast show en") == ["ended"]
    assert words("holdfast compare cut en") == ["ended"]
    assert words("holdfast logs ended d2a66_00001") == ["d2a66_00001"]
    note_listed(os.environ, "s3://bucket/results", ["far"])
    assert words("holdfast rm f") == ["far"]
    assert words(f"holdfast best --root {store} c") == ["cut"]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,000 trials, as a run leaves them."""
    root = tmp_path_factory.mktemp("large") / "large"
    space = tuple(describe({"lr": 0.5}))
    made = RecordedExperiment(root, metric="loss", mode="min", step_s=0.01, space=space)
    for number in range(2_000):
        trial = made.begin({"lr": number / 2_000})
        made.report(trial, {"loss": 1 / (1 + number)})
        made.finish(trial)
    made.close()
    return root


def test_thousands_of_trials_are_shown_without_waiting(
    large: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.process_time()
    out = told(capsys, "show", large)
    assert "2000 finished" in out
    assert "1980 more" in out
    told(capsys, "ls", large.parent)
    assert time.process_time() - began < 5  # some 0.6 s; 20 s would be a file read for each


def test_a_folder_of_experiments_is_not_taken_for_one(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["show"], ["doctor", "verify"]):
        assert main([*words, str(store)]) == 2
        assert f"a folder of experiments: pass one of them (holdfast ls {store}" in (
            capsys.readouterr().err
        )


def test_a_trial_that_has_not_failed_has_no_error_to_show(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["logs", "--error", str(store / "ended"), "0"]) == 2
    assert "has not failed: it has no error.txt" in capsys.readouterr().err


# -- names ------------------------------------------------------------------------------------


def test_a_name_that_ls_printed_is_taken_by_every_command_from_anywhere(
    store: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert main(["show", "ended"]) == 2
    assert "there is no experiment 'ended' in the current directory" in capsys.readouterr().err
    told(capsys, "ls", store)
    path = str(store / "ended")
    assert parsed(capsys, "show", "ended")["path"] == path
    assert parsed(capsys, "best", "ended")["trial_id"] == "d2a66_00000"
    assert parsed(capsys, "doctor", "verify", "ended")["path"] == path
    assert parsed(capsys, "export", "ended", "-o", "x.csv")["path"] == path
    assert parsed(capsys, "nodes", "ended")["path"] == path
    assert parsed(capsys, "replay", "ended")["path"] == path
    assert [s["path"] for s in parsed(capsys, "compare", "ended:0", "cut")["sides"]] == [
        path,
        str(store / "cut"),
    ]
    assert main(["resume", "ended", "--trainable", "nowhere:train"]) == 2
    assert "No module named 'nowhere'" in capsys.readouterr().err
    assert parsed(capsys, "logs", "ended", "2", "--error")["trial_id"] == "d2a66_00002"
    assert main(["show", "endet"]) == 2
    assert "Similar names: ended" in capsys.readouterr().err
    monkeypatch.setenv("HOLDFAST_ROOT", str(tmp_path))
    assert main(["show", "ended"]) == 2
    assert parsed(capsys, "show", "ended", "--root", store)["path"] == path
    assert [e["name"] for e in parsed(capsys, "ls", store)["experiments"]] == ["cut", "ended"]
    monkeypatch.setenv("HOLDFAST_ROOT", str(store))
    assert [e["name"] for e in parsed(capsys, "ls")["experiments"]] == ["cut", "ended"]
    monkeypatch.delenv("HOLDFAST_ROOT")
    parsed(capsys, "ls", store / "cut")  # of one experiment: its neighbours have names, too
    assert parsed(capsys, "show", "ended")["path"] == path


# -- rm ---------------------------------------------------------------------------------------


def test_rm_shows_what_goes_and_asks_first(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = store / "ended"
    assert main(["rm", str(path)]) == 2
    out, err = capsys.readouterr()
    assert re.search(rf"ended:\n  remove [0-9.]+ kB in {path}\n", out)
    assert "loss=0.1 (d2a66_00000)" in out
    assert err == "holdfast: nothing is removed: without a terminal to ask, pass --yes\n"
    for answer, code in (("\n", 1), ("no\n", 1), ("", 1), ("y\n", 0)):
        assert path.is_dir()
        terminal = io.StringIO(answer)
        terminal.isatty = lambda: True  # type: ignore[method-assign]
        monkeypatch.setattr(sys, "stdin", terminal)
        assert main(["rm", str(path)]) == code
        out, err = capsys.readouterr()
        assert err.startswith("Remove this for good? [y/N] ")
    assert out.splitlines()[-1].startswith("ended is removed (")
    assert sorted(os.listdir(store)) == ["cut"]


def test_rm_of_several_removes_all_or_refuses_all(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = ExperimentLock(store / "cut" / ".lock")
    try:
        assert main(["rm", "--yes", str(store / "ended"), str(store / "cut")]) == 1
        assert f"process {os.getpid()}" in capsys.readouterr().err
    finally:
        lock.release()
    assert sorted(os.listdir(store)) == ["cut", "ended"]
    done = parsed(capsys, "rm", "--yes", store / "ended", store / "cut")["removed"]
    assert [(one["name"], one["local"]) for one in done] == [
        ("ended", str(store / "ended")), ("cut", str(store / "cut")),
    ]  # fmt: skip
    assert os.listdir(store) == []
    assert main(["rm", "--yes", str(store / "ended")]) == 2


# -- compare, plot, and the best trial's files ------------------------------------------------


def test_compare_puts_the_sides_next_to_each_other_and_draws_their_curves(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = told(capsys, "compare", f"{store}/ended:0", f"{store}/ended:1", store / "cut")
    lines = out.splitlines()
    assert lines[0].split() == ["ended:0", "ended:1", "cut"]
    facts = {line.split("  ")[0]: line.split() for line in lines[1:]}
    assert facts["best"] == ["best", "0.1", "(best)", "0.2", "0.1", "(best)"]
    assert facts["lr"] == ["lr", "0.1", "0.2", "0.1"]
    assert facts["iteration"] == ["iteration", "5", "5", "5"]
    assert "alike: kind=a" in lines
    assert lines[-3:] == ["  a ended:0", "  b ended:1", "  c cut"]
    assert max(map(len, lines)) <= 80
    assert main(["compare", str(store / "ended"), str(store / "nowhere")]) == 2
    assert "there is no experiment at" in capsys.readouterr().err


def test_more_sides_than_fit_are_shown_in_blocks(store: Path) -> None:
    out = in_terminal(["compare", *(f"{store}/ended:{n}" for n in range(3))], 45)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", out).splitlines()
    assert [line.split() for line in lines if line.strip()[:1] in ("0", "1", "2")][:2] == [
        ["0", "1"], ["2"],
    ]  # fmt: skip
    assert max(map(len, lines)) <= 45


def test_a_picture_needs_a_known_kind_a_known_ending_and_matplotlib(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(store / "ended")
    assert main(["plot", path, "--kind", "pie"]) == 2
    assert "the kinds are learning_curves, parallel_coordinates" in capsys.readouterr().err
    assert main(["plot", path, "-o", "x.gif"]) == 2
    assert "x.gif does not end with .png, .svg or .pdf" in capsys.readouterr().err
    assert main(["compare", path, "-o", str(tmp_path / "no" / "x.png")]) == 2
    assert f"there is no directory {tmp_path}/no" in capsys.readouterr().err


def test_the_best_trials_checkpoint_is_fetched_and_a_model_explains_itself(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, target = store / "ended", tmp_path / "weights"
    out = told(capsys, "best", path, "--checkpoint", target)
    assert out == f"{target}: the checkpoint of trial d2a66_00000 at iteration 4 (1 file, 20 B)\n"
    assert os.listdir(target) == ["model.txt"]
    assert main(["best", str(path), "--checkpoint", str(target)]) == 2
    assert "is not empty: name a new directory" in capsys.readouterr().err
    done = parsed(capsys, "best", path, "--checkpoint", tmp_path / "second")
    assert (done["directory"], done["checkpoint_iteration"]) == (str(tmp_path / "second"), 4)
    assert done["config"] == {"lr": 0.1, "kind": "a"}
    model = tmp_path / "model"
    done = parsed(capsys, "export", path, "--model", model, "--trial", "1")
    assert (done["trial_id"], done["files"]) == ("d2a66_00001", 1)
    assert sorted(os.listdir(model)) == ["metrics.json", "model.txt", "params.json"]
    assert json.loads((model / "params.json").read_text()) == {"lr": 0.2, "kind": "a"}
    assert json.loads((model / "metrics.json").read_text())["loss"] == 0.2
    assert main(["export", str(path), "--model", str(tmp_path / "third"), "--trial", "2"]) == 1
    assert "trial d2a66_00002 has no checkpoint" in capsys.readouterr().err
    assert not (tmp_path / "third").exists()


def test_show_watch_prints_what_has_ended_once(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = told(capsys, "show", "--watch", store / "ended")
    assert out.startswith("ended: interrupted\n")
    assert out.count("d2a66_00000") >= 1
    lines = told(capsys, "show", "--watch", "--json", store / "ended").splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["ended"]
    drawn = in_terminal(["show", "-w", f"{store}/ended"], 40)
    assert f"  holdfast resume --restart-errored {store}/ended   # finishes the rest" in drawn


def test_an_error_of_the_system_is_a_sentence(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(store / "ended" / ".lock"))

    monkeypatch.setattr("holdfast.experiment.doctor.repair.locked", refuses)
    assert main(["doctor", "repair", str(store / "ended")]) == 1
    assert capsys.readouterr().err == (
        f"holdfast: cannot use {store}/ended/.lock: Read-only file system. That disk "
        "cannot be written: use another path, or a copy elsewhere\n"
    )
