"""Extensions of an experiment on a restore, and `fit(resume=...)`."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.cli import main
from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.records.recovery import NothingToRestore
from holdfast.experiment.start.extension import Changes
from holdfast.experiment.user_objects.tuner_file import TunerFile
from holdfast.results.reading import load_experiment
from holdfast.trial.errors import InvalidConfig
from holdfast.tune.stopper import (
    CombinedStopper,
    MaximumIterationStopper,
    TimeoutStopper,
    TrialPlateauStopper,
)
from tests.fit.extending.trained import column, newest, train, trials_in
from tests.rig import checker


class Model:
    def __init__(self, name: str) -> None:
        self.name = name


def space(x: list[int], model: str) -> dict[str, Any]:
    return {"x": tune.grid_search(x), "model": Model(model)}


@pytest.fixture(scope="module")
def kept(shared_fit: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two trials that have ended at the bound of 2 epochs."""
    stop = {"training_iteration": 2}
    grid = shared_fit(train, space([1, 2], "old"), name="run", stop=stop, verbose=1)
    return Path(grid.experiment_path)


@pytest.fixture
def path(kept: Path, tmp_path: Path) -> Path:
    """The same, in its own place."""
    place = tmp_path / "results" / "run"
    shutil.copytree(kept, place)
    return place


def models(results: tune.ResultGrid) -> list[str]:
    return [(result.config or {})["model"].name for result in results]


def test_an_extended_experiment_keeps_all_that_there_is_and_continues(
    path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tuner = tune.Tuner.restore(
        path,
        train,
        param_space=space([2, 1, 7], "new"),
        stop=CombinedStopper(TimeoutStopper(600), MaximumIterationStopper(4)),
        checkpoint_config=tune.CheckpointConfig(num_to_keep=1),
        resume_config=tune.ResumeConfig("resume"),
        extend=True,
    )
    results = tuner.fit()
    assert [(result.config or {})["x"] for result in results] == [1, 2, 7]
    assert models(results) == ["old", "old", "new"]
    assert [column(result, "epoch") for result in results] == [[1, 2, 3, 4]] * 3
    assert [column(r, "model")[-1] for r in results] == ["old", "old", "new"]
    assert [trial.attempt for trial in trials_in(path)] == [2, 2, 1]
    assert [len(trial.checkpoints) for trial in trials_in(path)] == [1, 1, 1]
    assert checker.check(path) == []
    assert newest(tuner.fit(), "epoch") == [4] * 3  # it is so already

    # A later restore without arguments finds the experiment as it is now.
    later = tune.Tuner.restore(path, train)
    assert models(later.get_results()) == ["old", "old", "new"]
    spec = load_experiment(path).machine.spec
    assert (spec.timeout_s, spec.stop, spec.space_from) == (600, {"training_iteration": 4}, 2)
    with pytest.raises(InvalidConfig, match=r"stop: was CombinedStopper\(Timeout.*, now \{\}"):
        tune.Tuner.restore(path, train, stop={})


def test_the_command_extends_and_tells_what_changes_and_what_becomes_of_finished_trials(
    path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    more = ["resume", str(path), "--num-samples", "2", "--stop", "training_iteration=3"]
    assert main(more) == 2
    refused = capfd.readouterr().err
    assert "num_samples: was 1, now 2" in refused
    assert "or --extend to holdfast resume" in refused
    limits = ["--time-budget", "600", "--max-concurrent-trials", "1"]
    assert main([*more, *limits, "--extend"]) == 0
    told = capfd.readouterr().err
    assert (
        "the experiment is extended:\n"
        "  num_samples: was 1, now 2\n"
        "  stop: was {'training_iteration': 2}, now {'training_iteration': 3}\n"
        "  time_budget_s: was none, now 600.0\n"
        "  max_concurrent_trials: was none, now 1\n"
        "  finished trials left as they are: 2; to resume them: ResumeConfig(finished='resume')"
        ", or holdfast resume --resume-finished\n"
        "  trials still to start: 2\n"
    ) in told
    trials = trials_in(path)
    assert [trial.trial_id[-2:] for trial in trials] == ["00", "01", "02", "03"]
    assert [trial.config["x"] for trial in trials] == [1, 2, 1, 2]
    assert [trial.iteration for trial in trials] == [2, 2, 3, 3]
    spec = load_experiment(path).machine.spec
    assert (spec.time_budget_s, spec.max_concurrent) == (600, 1)


def test_without_extend_a_change_is_refused_with_all_that_differs(path: Path) -> None:
    with pytest.raises(InvalidConfig) as refused:
        tune.Tuner.restore(
            path, train, num_samples=3, stop={"epoch": 9}, param_space=space([1, 3], "old")
        )
    told = str(refused.value)
    assert "num_samples: was 1, now 3" in told
    assert "stop: was {'training_iteration': 2}, now {'epoch': 9}" in told
    assert "param_space: x: was grid_search([1, 2]), now grid_search([1, 3])" in told
    assert "extend=True" in told


def end_soon(trial_id: str, result: dict[str, Any]) -> bool:
    return True


def test_with_extend_a_function_takes_the_place_of_one_of_its_name(fit: Any, path: Path) -> None:
    tuner = tune.Tuner.restore(path, train, stop=end_soon, num_samples=2, extend=True)
    assert newest(tuner.fit(), "epoch") == [2, 2, 1, 1]
    assert tune.Tuner.restore(path, train, stop=end_soon)._request.changes is None
    again = tune.Tuner.restore(path, train, stop=end_soon, extend=True)._request.changes
    assert again is not None
    assert again.lines() == ["stop: was end_soon, now a different one"]


def test_what_is_not_a_change_needs_no_extend(path: Path) -> None:
    tuner = tune.Tuner.restore(
        path,
        train,
        num_samples=1,
        stop={"training_iteration": 2},
        param_space=space([1, 2], "replaced"),
    )
    assert models(tuner.get_results()) == ["replaced"] * 2


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"stop": {"epcoh": 5}}, "stop names 'epcoh', .* Did you mean 'epoch'"),
        ({"stop": TrialPlateauStopper("lost")}, "stop names 'lost'"),
        (
            {"stop": TimeoutStopper(1e-9)},
            "time_budget_s=1e-09 is already used up",
        ),
        ({"time_budget_s": 1e-9}, "is already used up"),
        ({"num_samples": -1}, "num_samples=-1 starts trials without end"),
        (
            {"num_samples": -1, "stop": MaximumIterationStopper(9)},
            "num_samples=-1 starts trials without end",
        ),
    ],
)
def test_an_extension_that_could_not_continue_is_refused_and_changes_nothing(
    path: Path, wanted: dict[str, Any], message: str
) -> None:
    before = Layout(path).tuner.read_bytes()
    with pytest.raises(InvalidConfig, match=message):
        tune.Tuner.restore(path, train, extend=True, **wanted).fit()
    assert Layout(path).tuner.read_bytes() == before
    assert load_experiment(path).machine.spec.stop == {"training_iteration": 2}


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"num_samples": 0}, "num_samples must be"),
        ({"time_budget_s": 0}, "time_budget_s must be above 0"),
        ({"stop": [MaximumIterationStopper(1)]}, "CombinedStopper"),
        ({"max_concurrent_trials": -1}, "max_concurrent_trials must be"),
        ({"failure_config": 3}, "failure_config must be a FailureConfig, not 3"),
        ({"checkpoint_config": 3}, "checkpoint_config must be a CheckpointConfig, not 3"),
    ],
)
def test_bad_settings_of_a_restore_are_refused_at_once(
    path: Path, wanted: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidConfig, match=message):
        tune.Tuner.restore(path, train, extend=True, **wanted)


def test_a_death_before_the_journal_knows_of_an_extension_leaves_the_experiment_as_it_was(
    path: Path,
) -> None:
    layout = Layout(path)
    given = Changes(param_space=space([5], "lost"), stop=TrialPlateauStopper("epoch"))
    changes = given.of(load_experiment(path).machine.spec)
    spec = changes.applied(made=2, strict=True, resources=None)
    changes.keep(TunerFile(layout.tuner), spec)

    tuner = tune.Tuner.restore(path)
    assert models(tuner.get_results()) == ["old", "old"]
    assert tuner._request.run.stop == {"training_iteration": 2}
    # Another one replaces it.
    again = tune.Tuner.restore(path, train, param_space=space([1, 2, 3], "new"), extend=True)
    assert models(again.fit()) == ["old", "old", "new"]


def test_a_tuner_file_that_is_gone_cannot_be_extended(path: Path) -> None:
    Layout(path).tuner.unlink()
    tuner = tune.Tuner.restore(path, train, param_space=space([3], "new"), extend=True)
    with pytest.raises(tune.TuneError, match="can be extended only with an intact file"):
        tuner.fit()


@pytest.fixture
def tuner(path: Path) -> Callable[..., tune.Tuner]:
    def make(
        param_space: dict[str, Any] | None = None,
        tune_config: tune.TuneConfig | None = None,
        **run: Any,
    ) -> tune.Tuner:
        given = {"name": "run", "stop": {"training_iteration": 2}, "verbose": 0, **run}
        return tune.Tuner(
            train,
            param_space=param_space or space([1, 2], "given"),
            tune_config=tune_config,
            run_config=tune.RunConfig(storage_path=path.parent, **given),
        )

    return make


def test_fit_begins_where_there_is_nothing_and_resumes_where_there_is(tuner: Any) -> None:
    first = tuner(space([1], "given"), name="fresh").fit(resume="auto")
    again = tuner(space([1], "given"), name="fresh").fit(resume="must")
    assert newest(first, "epoch") == [2]
    assert newest(again, "trial_id") == newest(first, "trial_id")


def test_must_raises_where_there_is_nothing(tuner: Any) -> None:
    assert issubclass(NothingToRestore, tune.TuneError)
    with pytest.raises(FileNotFoundError, match=r"there is no experiment in .*/nowhere"):
        tuner(name="nowhere").fit(resume="must")


def test_fit_refuses_another_experiment_or_extends_it_as_asked(
    tuner: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    longer = tuner(stop={"training_iteration": 3}, verbose=1)
    with pytest.raises(InvalidConfig, match=r"stop: was .*2\}, now .*3\}(.|\n)*extend=True"):
        longer.fit(resume="auto")
    going_on = tune.ResumeConfig("resume")
    results = longer.fit(resume="auto", extend=True, resume_config=going_on)
    assert newest(results, "epoch") == [3, 3]
    # As when a notebook's cell is run again.
    assert newest(longer.fit(resume="auto", extend=True), "epoch") == [3, 3]
    told = capfd.readouterr().err
    assert told.index("the experiment is extended") < told.index("run was finished")
    assert told.count("the experiment is extended") == 1


def test_a_script_may_add_a_budget_and_replace_it_by_a_limit(tuner: Any, path: Path) -> None:
    budget, limit = tune.TuneConfig(budget="1h"), tune.TuneConfig(time_budget_s=3600)
    tuner(None, budget).fit(resume="auto", extend=True)
    spec = load_experiment(path).machine.spec
    assert (spec.time_budget_s, spec.fits_budget) == (3600, True)
    told = "budget: was 3600.0, now none\n  time_budget_s: was none, now 3600.0"
    with pytest.raises(InvalidConfig, match=told):
        tuner(None, limit).fit(resume="auto")
    # A restore that gives another time leaves its kind.
    tune.Tuner.restore(path, train, time_budget_s=7200, extend=True).fit()
    tuner(None, tune.TuneConfig(budget="2h")).fit(resume="auto")
    tuner(None, limit).fit(resume="auto", extend=True)
    assert not load_experiment(path).machine.spec.fits_budget


@pytest.mark.parametrize(
    ("tune_config", "run", "told"),
    [
        (None, {"log_to_file": "out.txt"}, r"log_to_file: was \('stdout', 'stderr'\), now"),
        (
            None,
            {"checkpoint_config": tune.CheckpointConfig(3, "loss", "min")},
            "checkpoint_score_attribute: was none, now loss",
        ),
    ],
)
def test_what_a_restore_cannot_change_is_refused_also_with_extend(
    tuner: Any, tune_config: Any, run: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidConfig, match=told):
        tuner(None, tune_config, **run).fit(resume="auto", extend=True)


@pytest.mark.parametrize(
    ("run", "given", "message"),
    [
        ({}, {"resume": "maybe"}, "resume must be one of .* not 'maybe'"),
        ({}, {"resume": True}, "resume must be one of .* not True"),
        ({"name": None}, {"resume": "auto"}, r"by its name: give RunConfig\(name=...\)"),
        ({}, {"extend": True}, "pass resume='auto' or 'must' with them"),
        ({}, {"resume_config": tune.ResumeConfig()}, "pass resume='auto' or 'must' with them"),
    ],
)
def test_what_fit_cannot_understand_is_refused(
    tuner: Any, run: dict[str, Any], given: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidConfig, match=message):
        tuner(**run).fit(**given)


def told_settings(tuner: tune.Tuner) -> list[str]:
    changes = tuner._request.changes
    return [] if changes is None else changes.lines()


def test_a_script_whose_settings_were_edited_resumes_with_them_and_says_so(
    tuner: Any, path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    edited = tuner(
        None,
        tune.TuneConfig(max_concurrent_trials=8, reuse_actors=True),
        failure_config=tune.FailureConfig(3),
        checkpoint_config=tune.CheckpointConfig(num_to_keep=2),
        verbose=1,
    )
    edited.fit(resume="auto")
    assert (
        "from now on, max_concurrent_trials: was none, now 8; reuse_actors: was False, now True; "
        "failure_config: was max_failures=0, now max_failures=3; "
        "checkpoint_config: was num_to_keep=None, now num_to_keep=2\n"
    ) in capfd.readouterr().err
    spec = load_experiment(path).machine.spec
    assert (spec.max_concurrent, spec.failure.max_failures, spec.checkpoint.num_to_keep) == (
        8, 3, 2,
    )  # fmt: skip
    # It stays so, also for who says nothing of it.
    assert tune.Tuner.restore(path, train)._request.run.failure_config.max_failures == 3
    assert told_settings(tune.Tuner.restore(path, train)) == []


def test_a_run_config_that_says_where_also_says_what_a_restore_can_take_of_it(path: Path) -> None:
    where: dict[str, Any] = {"name": "run", "storage_path": path.parent}
    plain = tune.Tuner.restore(tune.RunConfig(**where), train)
    assert (told_settings(plain), plain._request.notices) == ([], ())
    edited = tune.RunConfig(
        **where,
        failure_config=tune.FailureConfig(1),
        stop={"training_iteration": 9},
        callbacks=[tune.Callback()],
        verbose=2,
    )
    restored = tune.Tuner.restore(edited, train)
    run = restored._request.run
    assert (run.callbacks, run.verbose) == (edited.callbacks, 2)
    assert plain._request.run.verbose == 1
    assert told_settings(restored) == ["failure_config: was max_failures=0, now max_failures=1"]
    (notice,) = restored._request.notices
    assert "keeps stop={'training_iteration': 2} and ignores the {'training_" in notice
    longer = tune.Tuner.restore(edited, train, stop=edited.stop, extend=True)
    assert longer._request.notices == ()
