"""`holdfast ls`: states, tags and places, and what it shortens in a narrow terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.cli import main
from holdfast.cli.browse import output
from holdfast.experiment.records.view import Condition, Standing
from holdfast.results.catalog import Best, CatalogEntry
from holdfast.syncer.uploader.lock import ExperimentLock
from tests.command.commands import parsed, stopped, told
from tests.rig.runs.recorded import RecordedExperiment


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


def test_what_a_plain_resume_finishes_is_interrupted_though_trials_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped(tmp_path / "run")
    out = told(capsys, "ls", tmp_path)
    assert "run   interrupted  2 failed, 1 interrupted, 2 not created yet" in out
    (found,) = parsed(capsys, "ls", tmp_path)["experiments"]
    assert found["not_created"] == 2
    out = told(capsys, "show", tmp_path / "run")
    assert f"holdfast resume {tmp_path}/run   # finishes the rest\n" in out
    assert "2 failed, 1 interrupted, 2 not created yet; train, began" in out


ENTRY = CatalogEntry(
    name="digits",
    path="/results/digits",
    standing=Standing(
        state=Condition.INTERRUPTED,
        counts={"TERMINATED": 17, "ERROR": 1, "PENDING": 2},
        stop_reasons={"finished": 17, "failed": 1, "interrupted": 2},
        not_created=4,
    ),
    best=Best(trial_id="46f40_00007", metric="accuracy", mode="max", value=0.975),
    began_at=0.0,
    size_bytes=2048,
)
BEST = "accuracy=0.975 (46f40_00007)"


@pytest.mark.parametrize(
    ("width", "header", "row", "hidden"),
    [
        (0, "NAME    STATE        TRIALS  ", "17 finished, 1 failed, 2 interrupted, 4 not", ""),
        (90, "BEST                          AGE   SIZE", "18 of 24, 1 failed", ""),
        (80, "BEST                          AGE", "18 of 24, 1 failed", "SIZE does"),
        (60, "NAME    STATE        BEST", BEST, "SIZE, AGE, TRIALS do"),
        (30, "NAME    STATE", "digits  interrupted", "SIZE, AGE, TRIALS, BEST do"),
    ],
)
def test_trials_are_shortened_then_columns_are_left_out_and_named(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    width: int,
    header: str,
    row: str,
    hidden: str,
) -> None:
    monkeypatch.setattr(output, "terminal_width", lambda: width)
    output.show_entries([ENTRY], now=9.0)
    first, second, *more = capsys.readouterr().out.splitlines()
    assert header in first
    assert row in second
    assert (BEST in second) is (width != 30)
    assert more == [f"... {hidden} not fit here: widen the terminal, or add --json"] * bool(hidden)
    if width:
        assert max(map(len, (first, second))) <= width
