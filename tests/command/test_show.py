"""`holdfast show` and `holdfast logs`: trials, failures and what they wrote."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from holdfast.cli import main
from holdfast.trial.search_space.description import describe
from tests.command.commands import in_terminal, parsed, stamps, stopped, told
from tests.rig.runs.recorded import RecordedExperiment


def test_show_tells_the_best_the_trials_and_what_failed_with_its_logs(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = told(capsys, "show", store / "cut")
    (folder,) = (store / "cut").glob("train_d2a66_00002_*")
    assert "cut: interrupted\n" in out
    assert "best loss=0.1 train_d2a66_00000" in out
    assert "train_d2a66_00001  interrupted ↻1" in out
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


def test_failures_of_one_cause_are_shown_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped(tmp_path / "run")
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


def test_a_trial_that_has_not_failed_has_no_error_to_show(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["logs", "--error", str(store / "ended"), "0"]) == 2
    assert "has not failed: it has no error.txt" in capsys.readouterr().err


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
