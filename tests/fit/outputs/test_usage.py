"""What trials use: shown by the results, the command and TensorBoard; and limits of memory."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import tune
from holdfast.cli import main
from holdfast.runtime.warm import sampling
from holdfast.runtime.warm.memory_groups import CannotEnforce, prepare
from holdfast.trial.errors import ImpossibleResources, InvalidConfig

MB = 1 << 20


def until_measured(config: dict[str, Any]) -> None:
    """Report until the journal says what the attempt has used, and once more; then fail, unless
    this is the second attempt."""
    kept = b"x" * (50 * MB)
    journal = Path(config["journal"])
    before = journal.read_bytes().count(b"Measured")
    while journal.read_bytes().count(b"Measured") == before:
        tune.report({"kept": len(kept)})
    tune.report({"kept": len(kept)})
    if tune.get_context().get_attempt() == 1:
        raise ValueError("the first attempt fails")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tune.ResultGrid:
    storage = tmp_path_factory.mktemp("measured")
    journal = storage / "run" / "journal" / "000000.log"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "PERIOD_S", 0.05)
        patch.setenv("HOLDFAST_TENSORBOARD", "1")
        return tune.Tuner(
            until_measured,
            param_space={"journal": str(journal)},
            run_config=tune.RunConfig(
                name="run",
                storage_path=str(storage),
                verbose=0,
                failure_config=tune.FailureConfig(max_failures=1),
            ),
        ).fit()


@pytest.mark.process
class TestUsage:
    def test_a_result_says_what_each_attempt_has_used_and_all_together(
        self, results: tune.ResultGrid
    ) -> None:
        first, second = results[0].usages
        assert (first.attempt, second.attempt) == (1, 2)
        together = results[0].usage
        assert together is not None
        assert together.cpu_s == first.cpu_s + second.cpu_s > 0
        assert together.wall_s == first.wall_s + second.wall_s
        assert together.memory_bytes == max(first.memory_bytes, second.memory_bytes) > 40 * MB

    def test_the_dataframe_has_it_by_name_without_what_nobody_knows(
        self, results: tune.ResultGrid
    ) -> None:
        (line,) = results.get_dataframe().to_dict("records")
        usage = results[0].usage
        assert usage is not None
        assert line["usage/cpu_s"] == usage.cpu_s
        assert line["usage/memory_bytes"] == usage.memory_bytes
        assert "usage/gpu_s" not in line

    def test_tensorboard_has_a_curve_of_it(self, results: tune.ResultGrid) -> None:
        files = Path(results[0].path).glob("events.out.tfevents.*")
        assert b"ray/tune/usage/cpu_s" in b"".join(file.read_bytes() for file in files)

    def test_show_has_columns_of_it_and_the_total(
        self, results: tune.ResultGrid, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["show", results.experiment_path]) == 0
        shown = capsys.readouterr().out
        assert "of CPU time; at most" in shown
        (header,) = (line.split() for line in shown.splitlines() if line.startswith("trial "))
        assert header[-2:] == ["cpu", "mem"]
        assert main(["show", "--costs", results.experiment_path]) == 0
        shown = capsys.readouterr().out
        (header,) = (line.split() for line in shown.splitlines() if line.startswith("trial "))
        assert header[2:6] == ["iter", "time", "cpu", "mem"]

    def test_the_json_of_show_has_each_attempt(
        self, results: tune.ResultGrid, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["show", "--json", results.experiment_path]) == 0
        shown = json.loads(capsys.readouterr().out)
        (trial,) = shown["trials"]
        assert [one["attempt"] for one in trial["usages"]] == [1, 2]
        assert trial["usage"]["cpu_s"] == shown["usage"]["cpu_s"] > 0


def hungry(config: dict[str, Any]) -> None:
    kept = b"x" * config["bytes"]
    tune.report({"kept": len(kept)})


def fails_once(config: dict[str, Any]) -> None:
    if not os.path.exists(config["marker"]):
        Path(config["marker"]).touch()
        raise ValueError("the first attempt fails")


def test_memory_is_counted_and_too_much_is_refused_before_the_first_trial(fit: Any) -> None:
    holdfast.init(num_cpus=2, resources={"memory": 1e9})
    with pytest.raises(ImpossibleResources, match=r"'memory': 2000000000.*machine has.*'memory'"):
        fit(tune.with_resources(hungry, {"cpu": 1, "memory": 2e9}), {"bytes": 1})


def test_the_machines_memory_is_known_without_being_asked_for(fit: Any) -> None:
    with pytest.raises(ImpossibleResources, match="memory"):
        fit(tune.with_resources(hungry, {"cpu": 1, "memory": 1e17}), {"bytes": 1})


@pytest.mark.process
def test_a_trial_that_uses_more_than_it_requests_is_killed_if_that_is_enforced(fit: Any) -> None:
    try:
        prepare()
    except CannotEnforce as error:
        pytest.skip(str(error))
    holdfast.init(num_cpus=2, enforce_memory=True)
    results = fit(
        tune.with_resources(hungry, {"cpu": 1, "memory": 100 * MB}),
        {"bytes": tune.grid_search([MB, 200 * MB])},
    )
    assert results.num_terminated == 1
    (failed,) = results.errors
    assert failed.failure.kind == "memory"
    assert "used more than its memory request of 104.9 MB and was killed" in str(failed)
    holdfast.shutdown()  # as in the process of the command that fit() prints
    assert main(["resume", "--restart-errored", results.experiment_path]) == 1
    (failed,) = tune.load(results.experiment_path).errors
    assert failed.failure.kind == "memory"


def refuses() -> None:
    raise CannotEnforce("the resource memory cannot be enforced: no reason. Leave it out")


class TestAResumeOfARunThatEnforcedMemory:
    @pytest.fixture
    def path(self, fit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
        """A run with an unfinished trial, on a machine that allows the limit."""
        monkeypatch.setattr("holdfast.experiment.start.planning.prepare", lambda: None)
        monkeypatch.setenv("HOLDFAST_ENFORCE_MEMORY", "1")
        results = fit(fails_once, {"marker": str(tmp_path / "marker")}, verbose=1)
        assert results.num_errors == 1
        monkeypatch.delenv("HOLDFAST_ENFORCE_MEMORY")
        return str(results.experiment_path)

    def test_says_where_it_cannot_enforce_it(
        self, path: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr("holdfast.experiment.start.planning.prepare", refuses)
        tune.Tuner.restore(path, restart_errored=True).fit()
        said = capsys.readouterr().err
        assert "from now on they can: the resource memory cannot be enforced: no reason" in said

    def test_obeys_a_script_that_says_otherwise(
        self,
        path: str,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setenv("HOLDFAST_ENFORCE_MEMORY", "0")
        tune.Tuner.restore(path, restart_errored=True).fit()
        assert "from now on they can: holdfast.init() has no" in capsys.readouterr().err


def test_what_cannot_be_enforced_is_refused_before_the_first_trial(
    fit: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOLDFAST_ENFORCE_MEMORY", "1")
    monkeypatch.setattr("holdfast.experiment.start.planning.prepare", refuses)
    with pytest.raises(InvalidConfig, match="cannot be enforced: no reason"):
        fit(hungry, {"bytes": 1}, name="never")
    assert not list(tmp_path.glob("results/never/hungry*"))
