"""`holdfast replay`: what a run would have cost, on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast import tune
from holdfast.cli import main
from holdfast.simulate import simulate


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "fifo"
    simulate(
        lambda config, iteration: config["lr"] + 1 / iteration,
        param_space={"lr": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=9),
        run_config=tune.RunConfig(stop={"training_iteration": 9}),
        workers=3,
        trace=path,
    )
    return path


def test_both_are_reported_side_by_side(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["replay", str(run), "--scheduler", "asha", "--workers", "9"]
    words += ["--option", "max_t=9", "--option", "reduction_factor=3"]
    assert main(words) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[0].split() == ["as", "it", "was", "under", "ASHAScheduler"]
    assert [line.split()[-2:] for line in table[1:3]] == [["3", "9"], ["27s", "9.0s"]]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["path"] == str(run)
    assert (found["recorded"]["workers"], found["simulated"]["workers"]) == (3, 9)
    assert found["simulated"]["scheduler"] == "ASHAScheduler"
    assert found["simulated"]["best"] == found["recorded"]["best"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--scheduler", "best"], "there is no scheduler 'best', only auto, fifo, asha"),
        (["--scheduler", "asha", "--option", "max=3"], "unexpected keyword argument 'max'"),
        (["--scheduler", "asha", "--option", "max_t"], "takes NAME=VALUE"),
        (["--scheduler", "asha", "--option", "max_t=none"], "max_t='none'"),
        (["--workers", "0"], "workers must be a whole number of at least 1"),
    ],
)
def test_what_it_cannot_do_is_reported(
    words: list[str], told: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(run), *words]) == 2
    assert told in capsys.readouterr().err
    assert main(["replay", str(run), *words, "--json"]) == 2
    assert told in json.loads(capsys.readouterr().out)["error"]
