"""Every reader of a damaged experiment gets one message, and nothing in the files controls a
terminal."""

from __future__ import annotations

import fcntl
import io
import json
import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.cli import main
from holdfast.experiment.progress.summarizer import Summarizer
from holdfast.experiment.progress.summary import RunFacts, Summary
from holdfast.experiment.progress.views import LogView, SilentView, html_of, text_of
from holdfast.results.reading import load_experiment
from holdfast.syncer.journal.segment import segment_name, segments
from holdfast.trial.errors import Failure, TrialError, TuneError
from tests.rig.runs.recorded import RecordedExperiment

EVIL = "\x1b]0;owned\x07\x1b[2Jx\r\u202e\x9b2J"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("damaged") / "storage" / "run"
    run = RecordedExperiment(root, metric="loss", mode="min")
    for loss in (1.0, 2.0, 3.0, 4.0):
        trial_id = run.begin({"lr": loss})
        run.report(trial_id, {"loss": loss})
        run.finish(trial_id)
    run.ends(snapshot=True)
    return root


@pytest.fixture
def root(template: Path, in_memory: Path) -> Path:
    return Path(shutil.copytree(template, in_memory / "storage" / "run"))


def train(config: dict[str, Any]) -> None:
    raise AssertionError("nothing is trained")


def damage(root: Path, share: float, *, snapshots: bool) -> None:
    """A bit flips in the middle of the journal."""
    path = root / "journal" / segment_name(segments(root / "journal")[0])
    data = bytearray(path.read_bytes())
    data[int(share * len(data))] ^= 4
    path.write_bytes(data)
    if not snapshots:
        for snapshot in root.glob("experiment_state-*"):
            snapshot.unlink()


@contextmanager
def as_of_a_run(root: Path) -> Iterator[None]:
    """A lock belongs to each opened file, so one of this process works like a run's."""
    with open(root / ".lock", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.mark.parametrize(
    "words",
    [["best"], ["show"], ["show", "--json"], ["export", "--format", "json"], ["ls"], ["logs"],
     ["ls", "--json"], ["replay", "--scheduler", "asha"]],
    ids=" ".join,
)  # fmt: skip
def test_every_command_tells_of_a_damage_once(
    root: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    words: list[str],
) -> None:
    damage(root, 0.6, snapshots=False)
    place = root.parent if words[0] == "ls" else root
    main([*words, str(place), *["0"] * (words == ["logs"])])
    out, err = capsys.readouterr()
    told = out + err + caplog.text
    expected = 2 if words == ["show", "--json"] else 1  # in the JSON, and on stderr
    assert told.count("is left out") == expected


@pytest.mark.parametrize("read", [tune.ExperimentAnalysis, load_experiment])
def test_every_reading_in_a_script_tells_of_a_damage_once(
    root: Path, caplog: pytest.LogCaptureFixture, read: Any
) -> None:
    damage(root, 0.6, snapshots=False)
    read(str(root))
    warned = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len([text for text in warned if "is left out" in text]) == 1


def test_the_results_of_a_restore_tell_of_a_damage_once(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    damage(root, 0.6, snapshots=False)
    grid = tune.Tuner.restore(str(root), train, param_space={}).get_results()
    assert len(grid) < 4
    assert caplog.text.count("is left out") == 1


def test_a_damage_before_the_snapshot_is_reported(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    damage(root, 0.3, snapshots=True)
    assert len(load_experiment(str(root)).machine.trials) == 4
    assert "The data shown comes from a newer snapshot" in caplog.text


def test_a_journal_that_ends_inside_a_record_is_reported_unless_it_is_being_written(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A crash in the middle of a write leaves it so, and so does truncation."""
    path = root / "journal" / segment_name(0)
    path.write_bytes(path.read_bytes()[:-3])
    for snapshot in root.glob("experiment_state-*"):
        snapshot.unlink()
    load_experiment(str(root))
    assert caplog.text.count("ends inside a record, at offset") == 1
    caplog.clear()
    with as_of_a_run(root):
        load_experiment(str(root))
    assert caplog.text == ""


def test_a_sound_experiment_is_not_worth_a_word(
    root: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    load_experiment(str(root))
    assert main(["best", str(root)]) == 0
    assert caplog.text == ""
    assert capsys.readouterr().err.startswith("holdfast: loss=1, trial d2a66_00000 at")


READERS_OF_ROWS: dict[str, Callable[[tune.ExperimentAnalysis], object]] = {
    "all trials at once": lambda analysis: analysis.trial_dataframes,
    "one result": lambda analysis: tune.ResultGrid(analysis)[1].metrics_dataframe,
}


@pytest.mark.parametrize("read", READERS_OF_ROWS.values(), ids=READERS_OF_ROWS)
def test_rows_that_are_missing_from_the_files_of_an_ended_trial_are_reported(
    root: Path,
    caplog: pytest.LogCaptureFixture,
    read: Callable[[tune.ExperimentAnalysis], object],
) -> None:
    sorted(root.glob("train_*"))[1].joinpath("result.json").write_bytes(b"")
    read(tune.ExperimentAnalysis(str(root)))
    assert caplog.text.count("has rows up to iteration 0, but the journal up to 1") == 1


def test_rows_that_are_missing_from_the_files_of_a_killed_run_are_reported(
    in_memory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = in_memory / "storage" / "run"
    run = RecordedExperiment(root, metric="loss", mode="min")
    trial_id = run.begin({"lr": 1.0})
    run.report(trial_id, {"loss": 1.0})
    run.ends(snapshot=False)
    (result,) = root.glob("train_*/result.json")
    result.write_bytes(b"")
    assert dict(tune.ExperimentAnalysis(str(root)).trial_dataframes)
    assert caplog.text.count("has rows up to iteration 0, but the journal up to 1") == 1
    caplog.clear()
    with as_of_a_run(root):  # which writes them a moment later
        assert dict(tune.ExperimentAnalysis(str(root)).trial_dataframes)
    assert caplog.text == ""


RESULTS_CUT: dict[str, Callable[[bytes], bytes]] = {
    "bits": lambda data: data[:20] + b"\0\xff" + data[22:],
    "zeros": lambda data: bytes(len(data)),
    "not a row": lambda data: b"[1]\n",
    "nested": lambda data: b"[" * 100_000 + b"\n",
}


@pytest.mark.parametrize("cut", RESULTS_CUT.values(), ids=RESULTS_CUT)
def test_a_result_of_a_damaged_folder_is_an_error_of_its_file(
    root: Path, cut: Callable[[bytes], bytes]
) -> None:
    trial = sorted(root.glob("train_*"))[1]
    file = trial / "result.json"
    file.write_bytes(cut(file.read_bytes()))

    def read() -> None:
        result = tune.Result.from_path(str(trial))
        _ = result.metrics, result.metrics_dataframe

    with pytest.raises(TuneError, match=r"result\.json") as caught:
        read()
    assert "\n" not in str(caught.value)


# -- messages at verbose=0 ------------------------------------------------------------------------


# -- control characters ---------------------------------------------------------------------------


def evil_summary(tmp_path: Path) -> Summary:
    run = RecordedExperiment(tmp_path / "run", metric=f"loss{EVIL}", mode="min")
    trial_id = run.begin({f"lr{EVIL}": EVIL})
    run.report(trial_id, {f"loss{EVIL}": 1.0, "text": EVIL})
    failed = run.begin({f"lr{EVIL}": EVIL})
    run.report(failed, {f"loss{EVIL}": 2.0})
    run.fail(failed, f"ValueError: {EVIL}")
    return Summarizer(run.machine, max_rows=10).summarize(
        facts=RunFacts(name=f"run{EVIL}", path=f"/x{EVIL}", local_path=f"/x{EVIL}"),
        now=run.machine.now,
    )


def is_clean(text: str) -> bool:
    return not {"\x1b", "\x07", "\r", "\u202e", "\x9b"} & set(text)


def test_no_view_sends_a_control_character(tmp_path: Path) -> None:
    summary = evil_summary(tmp_path)
    for view in (LogView, SilentView):
        stream = io.StringIO()
        made = view(stream)
        made.start()
        made.update(summary)
        made.message(EVIL, "error")
        made.log(f"train{EVIL}", "printed")
        made.finish(summary)
        assert is_clean(stream.getvalue())
    assert is_clean(html_of(summary))
    assert is_clean(text_of(summary))
    assert "<script>" not in html_of(summary)


def test_no_command_and_no_error_sends_one(
    in_memory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = in_memory / "storage" / "run"
    run = RecordedExperiment(root, metric="loss", mode="min")
    trial_id = run.begin({f"lr{EVIL}": EVIL})
    run.report(trial_id, {"loss": 1.0, f"text{EVIL}": EVIL})
    run.fail(trial_id, f"ValueError: {EVIL}")
    run.ends()
    for words in (["show"], ["show", "--json"], ["best"], ["doctor", "verify"], ["ls"]):
        place = root.parent if words == ["ls"] else root
        main([*words, str(place)])
        assert is_clean("".join(capsys.readouterr()))
    failure = Failure(kind="user", type_name="ValueError", message=EVIL, traceback=EVIL)
    assert is_clean(str(TrialError("t", failure)))
    assert is_clean(str(TuneError(EVIL)))
    json.dumps(str(TuneError(EVIL)))
