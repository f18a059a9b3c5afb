"""`holdfast run`: what it prints for a sweep file, and what its options change."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.cli import main
from tests.rig.isolation import in_own_environment as in_own_environment
from tests.rig.isolation import leaves_nothing as leaves_nothing

SWEEP = """
command: [{python}, -c, "print('holdfast: loss={{x}}')"]
parameters: {{x: {{values: [3]}}}}
metric: {{name: loss, goal: minimize}}
run_cap: 2
"""

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """`holdfast run digits.yaml` there, with further words; its code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits.yaml").write_text(SWEEP.format(python=sys.executable))

    def command(*words: str) -> tuple[int, str, str]:
        code = main(["run", "digits.yaml", "--storage", "out", *words])
        out, err = capfd.readouterr()
        return code, out, err

    return command


def test_a_dry_run_shows_commands_and_runs_nothing(run: Run, tmp_path: Path) -> None:
    code, out, err = run("--dry-run")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        f"results: {tmp_path}/out/digits",
        "trials:  2 trials, random or grid search",
        f"command: {sys.executable} -c 'print('\"'\"'holdfast: loss=3'\"'\"')'",
    ]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        (("--samples", "7"), {"num_samples": 7, "trials": 7}),
        (("--set", "run_cap=5"), {"num_samples": 5, "trials": 5}),
        (("--set", "scheduler=asha"), {"scheduler": "ASHAScheduler"}),
        (
            ("--set", "parameters.x.values=[4]", "--set", "command=echo {x}"),
            {"examples": ["echo 4"]},
        ),
    ],
)
def test_options_change_the_file(run: Run, words: tuple[str, ...], changed: Any) -> None:
    before = json.loads(run("--dry-run", "--json")[1])
    after = json.loads(run("--dry-run", "--json", *words)[1])
    assert {name: after[name] for name in changed} == changed
    same = set(before) - set(changed) - {"command"}
    assert {name: before[name] for name in same} == {name: after[name] for name in same}


def test_a_name_on_the_command_line_is_the_experiments(run: Run, tmp_path: Path) -> None:
    assert json.loads(run("--dry-run", "--json", "--name", "x")[1])["path"] == f"{tmp_path}/out/x"


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (
            ("--set", "run_capp=5"),
            "holdfast: --set: run_capp: is unknown here. Did you mean 'run_cap'?",
        ),
        (("--set", "run_cap"), "holdfast: --set takes KEY=VALUE"),
        (("--samples", "0"), "holdfast: command line: run_cap: num_samples must be 1 or more"),
    ],
)
def test_a_mistake_is_one_line_and_code_2(run: Run, words: tuple[str, ...], fault: str) -> None:
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert err.startswith(fault)
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("begins", "instead"),
    [
        ("program: train.sh", "sh train.sh ${args}"),
        ("command: ./train.sh {x}", "sh train.sh {x}"),
    ],
)
def test_a_program_that_is_not_executable_is_refused_before_a_trial(
    run: Run, tmp_path: Path, begins: str, instead: str
) -> None:
    (tmp_path / "digits.yaml").write_text(
        f"{begins}\nrun_cap: 1\nparameters: {{x: {{values: [3]}}}}\n"
    )
    (script := tmp_path / "train.sh").write_text("#!/bin/sh\necho holdfast: loss=1\n")
    code, out, err = run("--dry-run")
    assert (code, out) == (2, "")
    assert f"{script} is not executable: chmod +x {script}, or use the command: {instead}" in err
    script.chmod(0o755)
    assert run("--dry-run")[0] == 0


def test_a_missing_file_is_named(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "gone.yaml"]) == 2
    assert capfd.readouterr().err == "holdfast: cannot read gone.yaml: No such file or directory\n"


@pytest.mark.process
@pytest.mark.usefixtures("in_own_environment", "leaves_nothing")
def test_a_sweep_runs_once_then_anew_or_longer(run: Run) -> None:
    code, out, err = run("--json")
    shown = json.loads(out)
    assert (code, shown["state"], shown["run"]) == (0, "finished", 1)
    assert [trial["metrics"]["loss"] for trial in shown["trials"]] == [3, 3]
    code, out, err = run()
    assert (code, out) == (0, "")
    assert "holdfast: digits has ended: 2 trials\n" in err
    assert "  holdfast run digits.yaml --storage out --new   # starts" in err
    code, out, err = run("--samples", "3")
    assert (code, out) == (2, "")
    assert "num_samples: was 2, now 3" in err
    assert "holdfast run digits.yaml --storage out --samples 3 --extend applies this" in err
    code, out, err = run("--set", "parameters.x.values=[3, 4]", "--set", "stop.loss=5")
    assert (code, out) == (2, "")
    assert "param_space: x: was choice([3]), now choice([3, 4])" in err
    assert "stop: was {}, now {'loss': 5}" in err
    *_, err = run("--set", "parameters.x.values=[3]", "--samples", "2")
    again = "holdfast run digits.yaml --storage out --set 'parameters.x.values=[3]'"
    assert f"  {again} --samples 2 --new   # starts" in err
    assert f"  {again} --extend --samples N   # has" in err
    code, out, err = run("--json", "--extend", "--samples", "3")
    shown = json.loads(out)
    assert (code, shown["counts"], shown["run"]) == (0, {"TERMINATED": 3}, 1)
    code, out, err = run("--json", "--new", "--set", "command=sh -c false")
    shown = json.loads(out)
    assert (code, shown["state"], shown["run"]) == (1, "errored", 2)
    ended = run("--set", "command=sh -c false")[2]
    assert "digits has ended: 2 trials, 2 failed" in ended
    assert "  holdfast resume --restart-errored " in ended
    holdfast.shutdown()


SOON = """
command: "echo holdfast: loss={x}"
parameters: {x: {uniform: [1.0, 2.0]}}
metric: {name: loss, goal: minimize}
"""


@pytest.mark.process
@pytest.mark.usefixtures("in_own_environment", "leaves_nothing")
def test_a_finished_sweep_is_confirmed_once_the_file_says_so(run: Run, tmp_path: Path) -> None:
    (tmp_path / "digits.yaml").write_text(f"{SOON}num_samples: 1\n")
    assert run()[0] == 0
    (tmp_path / "digits.yaml").write_text(f"{SOON}num_samples: 1\nconfirm: 2\n")
    code, out, _ = run("--json")
    assert (code, [len(one["values"]) for one in json.loads(out)["confirmed"]]) == (0, [2])
    assert "digits has ended: 3 trials\n" in run()[2]
    holdfast.shutdown()


@pytest.mark.process
@pytest.mark.usefixtures("in_own_environment", "leaves_nothing")
def test_a_sweep_whose_time_is_over_says_how_it_gets_more(run: Run, tmp_path: Path) -> None:
    (tmp_path / "digits.yaml").write_text(f"{SOON}budget: 1s\n")
    run()
    code, _, err = run()
    assert code == 0
    assert "  holdfast run digits.yaml --storage out --set budget=S --extend   # searches" in err
    code, _, err = run("--set", "budget=2s")
    assert code == 2
    assert "budget: was 1.0, now 2.0" in err
    holdfast.shutdown()


def test_a_dry_run_counts_the_trials_of_a_grid(run: Run, tmp_path: Path) -> None:
    sweep = "command: echo {x}\nmethod: grid\nparameters: {x: {values: [1, 2, 3]}}\n"
    (tmp_path / "digits.yaml").write_text(sweep)
    out = run("--dry-run")[1]
    assert out.splitlines()[1:] == [
        "trials:  3 trials, random or grid search",
        "command: echo 1",
        "or:      echo 2",
        "or:      echo 3",
    ]


FAILS = """
import sys
sys.exit("the file is broken") if int(sys.argv[1][4:]) < {} else print("holdfast: loss=1")
"""


@pytest.mark.process
@pytest.mark.usefixtures("in_own_environment", "leaves_nothing")
def test_failed_trials_run_again_once_the_script_has_changed(run: Run, tmp_path: Path) -> None:
    (script := tmp_path / "train.py").write_text(FAILS.format(2))
    sweep = "program: train.py\nmethod: grid\nparameters: {x: {values: [1, 2]}}\n"
    (tmp_path / "digits.yaml").write_text(sweep)
    code, _, err = run()
    assert code == 1
    assert "CommandFailed: exit code 1: the file is broken. The command: " in err
    again = f"run {tmp_path}/digits.yaml --storage {tmp_path}/out"
    assert re.search(f"To retry the failed .* correct the command or its script, .*{again}", err)
    assert "digits has ended: 2 trials, 1 failed" in run()[2]
    script.write_text(FAILS.format(1))
    code, out, err = run("--json")
    assert (code, json.loads(out)["counts"]) == (0, {"TERMINATED": 2})
    assert "the command or its script has changed since these trials ran: 1 failed trial" in err
    assert "digits has ended: 2 trials\n" in run()[2]
    holdfast.shutdown()


UNREAD = """
command: [sh, -c, "echo holdfast: loss={x}; echo 1 holdfast: x=2; echo holdfast: x; exit {x}"]
method: grid
parameters: {x: {values: [0, 1]}}
metric: {name: loss, goal: minimize}
"""


@pytest.mark.process
@pytest.mark.usefixtures("in_own_environment", "leaves_nothing")
@pytest.mark.parametrize("words", [(), ("--set", "verbose=0")])
def test_lines_that_could_not_be_read_are_counted_at_the_end_and_in_each_trials_line(
    run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    (tmp_path / "digits.yaml").write_text(UNREAD)
    code, _, err = run(*words)
    assert code == 1
    total = "4 lines looked like a report and could not be read. Where several processes print"
    assert total in err
    assert all(f" {state}, 2 unread " in err for state in ("finished", "failed") if not words)
    assert main(["show", "out/digits"]) == 0
    shown = capfd.readouterr().out
    assert total in shown
    assert " finished, 2 unread " in shown
    assert main(["show", "--json", "out/digits"]) == 0
    trials = json.loads(capfd.readouterr().out)["trials"]
    assert [trial["unread"] for trial in trials] == [2, 2]
