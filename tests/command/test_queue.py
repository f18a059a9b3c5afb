"""The commands of the queue that change and show its files."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from holdfast.cli import main
from holdfast.cli.queueing import name_of, with_short_commands

SCRIPT = "print('trained')\n"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOLDFAST_QUEUE", str(tmp_path / "queue"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main(["queue", *words]) == code
    return capsys.readouterr().out


def test_a_script_runs_with_this_python_and_its_own_options(
    capsys: pytest.CaptureFixture[str], place: Path
) -> None:
    assert "job 1: train is added" in told(capsys, "add", "train.py", "--lr", "1", "--json")
    (place / "sweep.yaml").touch()
    told(capsys, "add", "sweep.yaml", "--samples", "9")
    told(capsys, "add", "--name", "other", "--cpus", "2", "--", "sh", "-c", "echo '$HOME'")
    plain = json.loads(told(capsys, "ls", "--json"))
    first, sweep, second = plain["jobs"]
    run = [sys.executable, "-m", "holdfast", "run"]
    assert sweep["command"] == [*run, "sweep.yaml", "--samples", "9"]
    assert first["command"] == [sys.executable, "train.py", "--lr", "1", "--json"]
    assert first["directory"] == str(place)
    assert (second["name"], second["cpus"], second["gpus"]) == ("other", 2, None)
    assert second["command"] == ["sh", "-c", "echo '$HOME'"]
    assert {one["state"] for one in plain["jobs"]} == {"waiting"}
    shown = told(capsys, "ls")
    assert "python train.py --lr 1 --json" in shown
    assert "  holdfast run sweep.yaml --samples 9" in shown
    assert "EXPERIMENT" in shown


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("train.py --lr 1", "train"),
        ("python train.py --config other.yaml", "train"),
        ("/usr/bin/python3.12 -u jobs/train.py", "train"),
        ("sh train.sh", "train"),
        ("-- torchrun --nproc-per-node 2 train.py", "train"),
        ("python -c pass", "python"),
        ("./train --data x.json", "train"),
    ],
)
def test_a_job_has_the_name_of_its_script(words: str, name: str) -> None:
    assert name_of(words.split()) == name


def test_long_commands_are_cut_before_other_columns_are_lost() -> None:
    header = ["ID", "NAME", "COMMAND", "EXPERIMENT"]
    lines = [header, ["1", "train", "python train.py --lr 0.1 --epochs 90 --seed 1", "digits"]]
    (_, (*_, words, last)) = with_short_commands(lines, 60)
    assert words.startswith("python train.py --lr")
    assert (len(words), last) == (60 - 2 - 5 - 10 - 2 - 2 - 2, "digits")
    (_, (*_, words, _)) = with_short_commands(lines, 40)
    assert len(words) == 40 - 2 - 5 - 2 - 2
    assert with_short_commands(lines, 120) == lines


def test_what_cannot_run_is_refused_when_it_is_added(capsys: pytest.CaptureFixture[str]) -> None:
    for words, text in [
        ([], "queue add needs a command"),
        (["--"], "queue add needs a command"),
        (["absent.py"], "there is no file absent.py in"),
        (["no-such-program"], "no-such-program cannot be run"),
        (["--dir", "absent", "train.py"], "there is no such directory"),
    ]:
        assert main(["queue", "add", *words]) == 2
        assert text in capsys.readouterr().err
    assert "There is no job in" in told(capsys, "ls")


def test_jobs_are_held_back_made_due_again_and_removed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told(capsys, "add", "train.py")
    told(capsys, "stop", "1")
    assert "stopped" in told(capsys, "ls")
    assert "No job is due" in told(capsys, "run")
    assert "due" in told(capsys, "retry", "1")
    assert "waiting" in told(capsys, "ls")
    assert main(["queue", "rm", "1", "2"]) == 2  # all of them, or none
    assert "there is no job 2" in capsys.readouterr().err
    told(capsys, "rm", "1")
    assert main(["queue", "logs", "1"]) == 2
    assert "there is no job 1" in capsys.readouterr().err


@pytest.mark.process
def test_the_output_of_a_job_is_kept(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["queue", "add", "train.py"]) == 0
    assert main(["queue", "run", "--json"]) == 0
    capfdbinary.readouterr()
    assert main(["queue", "logs", "1"]) == 0
    assert capfdbinary.readouterr().out == b"trained\n"
    assert main(["queue", "logs", "--json", "1"]) == 0
    assert json.loads(capfdbinary.readouterr().out)["text"] == "trained\n"
