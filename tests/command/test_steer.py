"""The commands that steer a live run: what they ask, send and print."""

from __future__ import annotations

import json
import os
import pwd
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import main
from holdfast.experiment.folder.layout import CONTROL
from holdfast.scheduler.events import EndOrdered
from tests.command.commands import Terminal, completed
from tests.rig.runs.recorded import RecordedExperiment
from tests.rig.runs.steered import SteeredRun

BY = f"{pwd.getpwuid(os.geteuid()).pw_name} (command)"


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RecordedExperiment:
    """Four trials run, with a checkpoint each."""
    for name in ("RAY_STORAGE", "RAY_AIR_LOCAL_CACHE_DIR", "HOLDFAST_ROOT", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    made = RecordedExperiment(tmp_path / "run", num_samples=4)
    for _ in range(4):
        made.report(made.begin({"lr": 0.5}), {"loss": 1.0}, checkpoint="committed")
    return made


@pytest.fixture
def run(recorded: RecordedExperiment) -> Iterator[SteeredRun]:
    made = SteeredRun(recorded)
    with made.live():
        yield made
    recorded.close()


def said(capsys: pytest.CaptureFixture[str], words: str, code: int = 0) -> str:
    """What the command prints: on stdout if it succeeds, else on stderr."""
    assert main(shlex.split(words)) == code
    out, err = capsys.readouterr()
    assert (err if code == 0 else out) == ""
    text: str = err if code else out
    return text


def shown(run: SteeredRun) -> list[str]:
    """The orders in the journal, in short."""
    facts = [
        {name: getattr(event, name) for name in type(event).__dataclass_fields__}
        for event in run.recorded(BY)
    ]
    kinds = [type(event).__name__ for event in run.recorded(BY)]
    return [
        " ".join([kind, *(str(value) for name, value in fact.items() if name != "by")])
        for kind, fact in zip(kinds, facts, strict=True)
    ]


def test_each_command_is_an_event_in_the_journal(
    run: SteeredRun, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "next.json").write_text('{"lr": 0.25, "net": {"width": 8}}')
    assert said(capsys, "pause run 0 00001") == (
        "run: 2 trials pause (d2a66_00000, d2a66_00001) at their next report with a checkpoint\n"
    )
    assert said(capsys, "pause run --now 2") == "run: trial d2a66_00002 is paused\n"
    assert said(capsys, "resume run 1 0 3") == (
        "run: 2 trials resume (d2a66_00001, d2a66_00000). Not done: trial d2a66_00003 is not "
        "paused: RUNNING\n"
    )
    assert said(capsys, "stop run --yes 0 3") == "run: 2 trials stop (d2a66_00000, d2a66_00003)\n"
    told = "run: at most 2 trials run at once from now on. 3 run now, and continue\n"
    assert said(capsys, "limit run 2") == told
    assert said(capsys, "limit run 0") == "run: any number of trials may run at once from now on\n"
    assert said(capsys, "add run --trials 3") == "run: 3 trials are added: num_samples is now 7\n"
    added = "run: a trial with this config is added and starts next"
    assert said(capsys, "add run --config '{\"lr\": 0.1}'") == f"{added}\n"
    assert said(capsys, "add run --config next.json") == f"{added}\n"
    assert said(capsys, "note run 1 'plateaus at 0.3'") == (
        "run: the note of trial d2a66_00001 is written\n"
    )
    assert said(capsys, "note run 1 ''") == "run: the note of trial d2a66_00001 is removed\n"
    assert shown(run) == [
        "PauseRequested d2a66_00000 False",
        "PauseRequested d2a66_00001 False",
        "PauseRequested d2a66_00002 True",
        "ResumeRequested d2a66_00001",
        "ResumeRequested d2a66_00000",
        "TrialStopOrdered d2a66_00000",
        "TrialStopOrdered d2a66_00003",
        "LimitChanged 2",
        "LimitChanged None",
        "SamplesAdded 3 7",
        "ConfigAdded {'lr': 0.1}",
        "ConfigAdded {'lr': 0.25, 'net': {'width': 8}}",
        "NoteWritten d2a66_00001 plateaus at 0.3",
        "NoteWritten d2a66_00001 ",
    ]
    assert run.told[-1] == f"{BY}: the note of trial d2a66_00001 is removed"


def test_scripts_get_one_json_object(run: SteeredRun, capsys: pytest.CaptureFixture[str]) -> None:
    text = "the note of trial d2a66_00000 is written"
    assert json.loads(said(capsys, "note run 0 good --json")) == {"path": "run", "text": text}
    assert main(["resume", "run", "0", "--json"]) == 1
    failure = json.loads(capsys.readouterr().out)
    assert failure["error"] == "trial d2a66_00000 is not paused: RUNNING"
    assert failure["error_type"] == "OrderRefused"


@pytest.mark.parametrize("words", ["stop run 0 1", "stop run 0 1 --json"])
def test_without_a_terminal_trials_stop_only_with_yes(
    run: SteeredRun, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    assert said(capsys, words, code=2) == (
        "holdfast: no trial is stopped: without a terminal to ask, pass --yes\n"
    )
    assert shown(run) == []


def test_in_a_terminal_it_asks_before_trials_end_for_good(
    run: SteeredRun, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal("\n"))
    assert main(["stop", "run", "0", "1"]) == 1
    question = (
        "Stop 2 trials (d2a66_00000, d2a66_00001) for good? Their results are kept, and they "
        "cannot continue [y/N] "
    )
    assert capsys.readouterr().err == f"{question}holdfast: no trial is stopped\n"
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    assert main(["stop", "run", "0"]) == 0
    out, err = capsys.readouterr()
    assert err == (
        "Stop d2a66_00000 for good? Its results are kept, and it cannot continue [y/N] "
    )
    assert out == "run: trial d2a66_00000 stops\n"
    assert shown(run) == ["TrialStopOrdered d2a66_00000"]


def test_the_run_stops_without_a_question_because_a_restore_resumes_it(
    run: SteeredRun, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = said(capsys, "stop run").splitlines()
    assert first == "run: the experiment stops. A restore resumes it"
    assert second.startswith("To resume: ")
    assert second.endswith("resume run")
    assert run.machine.ending == EndOrdered(reason="interrupt", message=f"stopped by {BY}")
    again = said(capsys, "stop run").splitlines()[0]
    assert again == f"run: the run is ending already: stopped by {BY}"
    told = said(capsys, "add run --trials 1", code=1)
    assert told == f"holdfast: the run is ending: stopped by {BY}\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("stop run 9", "which trial? there is no '9': d2a66_00000, "),
        ("note run d2a66 x", "which trial? 'd2a66' matches several"),
        ("resume run 0 --extend --num-samples 9", "--extend is for a restore of the whole"),
        ("resume run 0 --trainable train:train", "--trainable is for a restore of the whole"),
        ("resume run --stop loss=1 0", "--stop is for a restore of the whole"),
        ("resume run 0 --max-concurrent-trials 0", "--max-concurrent-trials is for a restore"),
        ("add run --trials 0", "--trials must be at least 1"),
        ("add run --config {", "--config is not JSON: "),
        ("add run --config wrong.json", '--config wrong.json must be an object, as in \'{"lr"'),
        ("limit run 2000000", "max_concurrent must be a whole number from 1 to 1,000,000"),
        (f"note run 0 {'x' * 10_001}", "text has 10,001 characters, and at most 10,000 fit"),
        ("add run --config '{\"lrr\": 1}'", "there is no parameter 'lrr'"),
        ("add run --config nowhere.json", "cannot use nowhere.json: No such file"),
    ],
)
def test_a_mistake_is_one_line_and_changes_nothing(
    run: SteeredRun, capsys: pytest.CaptureFixture[str], tmp_path: Path, words: str, told: str
) -> None:
    (tmp_path / "wrong.json").write_text("[1]")
    assert main(shlex.split(words)) in (1, 2)
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert told in err
    assert shown(run) == []


@pytest.mark.parametrize(
    "words",
    [
        "stop",
        "pause run",
        "limit run",
        "limit run x",
        "limit run -1",
        "add run",
        "note run 0",
        "add run --trials 1 --config {}",
        "stop run 0 --yess",
    ],
)
def test_what_is_not_understood_is_2(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(shlex.split(words))
    assert caught.value.code == 2


@pytest.mark.parametrize(
    "words",
    [
        "stop run",
        "stop run 0 -y",
        "pause run 0",
        "resume run 0",
        "limit run 1",
        """add run --config {"x":1}""",
        "note run 0 x",
    ],
)
def test_an_experiment_that_nobody_runs_names_the_way_to_resume_it(
    recorded: RecordedExperiment, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    recorded.close()
    told = said(capsys, words, code=1)
    assert told.startswith("holdfast: no process runs run. To resume it: ")
    assert told.endswith("resume run\n")


def test_adding_samples_to_an_experiment_that_nobody_runs_names_the_way_to_extend_it(
    recorded: RecordedExperiment, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded.close()
    told = said(capsys, "add run --trials 3", code=1)
    samples = recorded.machine.spec.num_samples + 3
    assert told.endswith(f"resume --extend --num-samples {samples} run\n")


def test_the_socket_counts_as_the_runs_own_file(
    run: SteeredRun, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert (tmp_path / "run" / CONTROL).exists()
    main(["doctor", "verify", "run", "--json"])
    found: Any = json.loads(capsys.readouterr().out)
    assert [one["kind"] for one in found["findings"]] == ["tuner-file", "in-use"]
    assert json.loads(said(capsys, "ls . --json"))["experiments"][0]["state"] == "live"


def test_rm_takes_the_socket_of_a_killed_run_for_no_file_of_the_users(
    recorded: RecordedExperiment, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    recorded.close()
    (tmp_path / "run" / ".lock-workers").touch()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(CONTROL)
    Path(CONTROL).rename(tmp_path / "run" / CONTROL)
    told = said(capsys, "rm run --yes")
    assert "your own files" not in told
    assert not (tmp_path / "run").exists()


def test_trials_are_completed(recorded: RecordedExperiment, tmp_path: Path) -> None:
    for command in ("stop", "pause", "resume", "note"):
        found = [
            word.strip() for word in completed(f"holdfast {command} run d2a66_0000", tmp_path)
        ]
        assert found == [f"d2a66_{number:05d}" for number in range(4)]
    assert [w.strip() for w in completed("holdfast pause run 0 --n", tmp_path)] == ["--now"]
    assert [word.strip() for word in completed("holdfast stop ru", tmp_path)] == ["run"]
    recorded.close()
