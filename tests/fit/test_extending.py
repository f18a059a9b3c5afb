"""Extensions of an experiment on a restore, `fit(resume=...)`, and stoppers that a restore brings
to their former state."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.cli import main
from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.records.recovery import NothingToRestore
from holdfast.experiment.results.read_experiment import load_experiment
from holdfast.experiment.start.extension import Wanted
from holdfast.experiment.start.resume_checks import check_limit, fixed_differences
from holdfast.experiment.user_objects.tuner_file import TunerFile
from holdfast.scheduler.events import ExperimentSpec
from holdfast.syncer.journal.journal import Journal, read_segment
from holdfast.train import DataParallelTrainer, ScalingConfig, get_checkpoint, report
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.trial import Trial
from holdfast.tune.schedulers import ASHAScheduler
from holdfast.tune.search import BasicVariantGenerator, ConcurrencyLimiter, Searcher
from holdfast.tune.stopper import (
    CombinedStopper,
    MaximumIterationStopper,
    Stopper,
    TimeoutStopper,
    TrialPlateauStopper,
)
from tests.rig import checker


class Model:
    def __init__(self, name: str) -> None:
        self.name = name


def saved(epoch: int) -> tune.Checkpoint:
    folder = tempfile.mkdtemp()
    Path(folder, "epoch").write_text(str(epoch))
    return tune.Checkpoint.from_directory(folder)


def epochs() -> range:
    """Train from after the checkpoint, further than any bound."""
    start = 0
    if found := tune.get_checkpoint():
        with found.as_directory() as folder:
            start = int(Path(folder, "epoch").read_text())
    return range(start + 1, 100)


def train(config: dict[str, Any]) -> None:
    for epoch in epochs():
        tune.report({"epoch": epoch, "model": config["model"].name}, checkpoint=saved(epoch))


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


def column(result: tune.Result, name: str) -> list[Any]:
    assert result.metrics_dataframe is not None
    return list(result.metrics_dataframe[name])


def models(results: tune.ResultGrid) -> list[str]:
    return [(result.config or {})["model"].name for result in results]


def newest(results: tune.ResultGrid, name: str) -> list[Any]:
    return [(result.metrics or {})[name] for result in results]


def trials_in(path: Path) -> list[Trial]:
    return list(load_experiment(path).machine.trials.values())


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
    assert tune.Tuner.restore(path, train, stop=end_soon)._request.extension is None
    again = tune.Tuner.restore(path, train, stop=end_soon, extend=True)._request.extension
    assert again is not None
    assert again.wanted.lines(again.spec) == ["stop: was end_soon, now a different one"]


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
    wanted = Wanted(param_space=space([5], "lost"), stop=TrialPlateauStopper("epoch"))
    before = load_experiment(path).machine.spec
    spec = wanted.applied(before, made=2, strict=True, resources=None)
    wanted.keep(TunerFile(layout.tuner), spec)

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


class Upwards(Searcher):
    """Suggests 0, 1, 2, ..., and remembers its results."""

    def __init__(self) -> None:
        super().__init__(metric="x", mode="max")
        self.told: list[str] = []
        self.next = 0

    def set_search_properties(self, *args: Any, **spec: Any) -> bool:
        return True

    def suggest(self, trial_id: str) -> dict[str, Any]:
        self.next += 1
        return {"x": self.next - 1}

    def recall(self, trial_id: str, config: dict[str, Any]) -> None:
        self.told.append(f"recall {config['x']}")
        self.next = config["x"] + 1

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        self.told.append(f"complete {(result or {})['x']}")


def report_x(config: dict[str, Any]) -> None:
    tune.report({"x": config["x"]})


def test_a_search_hears_of_trials_that_it_could_have_suggested_in_the_new_space(
    fit: Any, tmp_path: Path
) -> None:
    config = tune.TuneConfig(search_alg=Upwards(), num_samples=2, max_concurrent_trials=1)
    fit(report_x, {"x": tune.randint(0, 9)}, config, name="run")
    path = tmp_path / "results" / "run"
    tuner = tune.Tuner.restore(
        path, report_x, param_space={"x": tune.randint(1, 9)}, num_samples=3, extend=True
    )
    assert newest(tuner.fit(), "x") == [0, 1, 2]
    search: Any = tuner._request.tune.search_alg
    assert search.told == ["recall 1", "complete 1", "complete 2"]


# -- one line for first start and restart --------------------------------------------------------


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


def test_a_run_with_failed_trials_says_how_they_are_retried(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def train(config: dict[str, Any]) -> None:
        tune.report({"epoch": 1})
        raise ValueError("bad data")

    tuner = tune.Tuner(train, run_config=tune.RunConfig(name="run", storage_path=str(tmp_path)))
    for resume in ("never", "auto"):
        assert tuner.fit(resume=resume).num_errors == 1
    root, shell = tmp_path / "run", f"resume --restart-errored {tmp_path}/run retries"
    retry = "resume='auto', resume_config=ResumeConfig(errored='restart') or "
    told = capfd.readouterr().err
    assert f"run was finished (1 trial failed; {retry}" in told
    assert f"{shell})" in told
    commands = re.findall(r"To retry the failed trials: (.+)", told)
    assert len(commands) == 2
    assert commands[1].startswith("correct the code and start this script")
    assert all(one.endswith(f"holdfast resume {root} --restart-errored") for one in commands)
    assert tune.Tuner.restore(tmp_path / "run").fit().num_errors == 1
    told, retry = capfd.readouterr().err, "restore(..., restart_errored=True) or "
    assert f"run was finished (1 trial failed; {retry}" in told
    assert f"{shell})" in told


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


def loop(config: dict[str, Any]) -> None:
    report({"resumed": get_checkpoint() is not None}, checkpoint=saved(1))
    if config["fails"] and not Path(config["fails"]).exists():
        raise RuntimeError("not yet")


def test_a_trainer_resumes_its_training(tmp_path: Path) -> None:
    def trainer(**config: Any) -> DataParallelTrainer:
        return DataParallelTrainer(
            loop,
            train_loop_config={"fails": str(tmp_path / "mended"), **config},
            scaling_config=ScalingConfig(num_workers=1),
            run_config=tune.RunConfig(storage_path=tmp_path / "results", name="t", verbose=0),
        )

    with pytest.raises(RuntimeError, match="not yet"):
        trainer().fit(resume="auto")
    (tmp_path / "mended").touch()
    assert (trainer().fit(resume="auto").metrics or {})["resumed"]
    with pytest.raises(InvalidConfig, match=r"DataParallelTrainer\.restore\(path, \.\.\.\) takes"):
        trainer(more=1).fit(resume="auto")
    with pytest.raises(InvalidConfig, match="A restore cannot change num_samples"):
        tune.Tuner.restore(tmp_path / "results" / "t", num_samples=2, extend=True)


# -- settings that hold from the next start on ----------------------------------------------------


def told_settings(tuner: tune.Tuner) -> list[str]:
    extension = tuner._request.extension
    return [] if extension is None else extension.wanted.lines(extension.spec)


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


def test_a_restore_takes_settings_without_extend(path: Path) -> None:
    restored = tune.Tuner.restore(
        path,
        train,
        max_concurrent_trials=2,
        failure_config=tune.FailureConfig(-1),
        checkpoint_config=tune.CheckpointConfig(num_to_keep=1),
    )
    assert told_settings(restored) == [
        "max_concurrent_trials: was none, now 2",
        "failure_config: was max_failures=0, now max_failures=-1",
        "checkpoint_config: was num_to_keep=None, now num_to_keep=1",
    ]
    assert told_settings(tune.Tuner.restore(path, train, max_concurrent_trials=0)) == []
    with pytest.raises(InvalidConfig, match="checkpoint_score_attribute: was none, now epoch"):
        tune.Tuner.restore(path, train, checkpoint_config=tune.CheckpointConfig(1, "epoch"))


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


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_concurrent_trials": -1}, "max_concurrent_trials must be"),
        ({"failure_config": 3}, "failure_config must be a FailureConfig, not 3"),
        ({"checkpoint_config": 3}, "checkpoint_config must be a CheckpointConfig, not 3"),
    ],
)
def test_settings_that_are_none_are_refused(
    path: Path, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidConfig, match=message):
        tune.Tuner.restore(path, train, **given)


def test_random_search_without_end_is_refused_also_where_it_is_named() -> None:
    endless = tune.TuneConfig(search_alg=BasicVariantGenerator(), num_samples=-1)
    with pytest.raises(InvalidConfig, match="num_samples=-1 starts trials without end"):
        tune.Tuner(train, tune_config=endless)


def test_a_search_algorithm_that_limits_itself_is_not_overruled() -> None:
    limiter = ConcurrencyLimiter(Upwards(), max_concurrent=2)
    check_limit(limiter, {"max_concurrent": 2})
    check_limit(limiter, {})
    check_limit(BasicVariantGenerator(max_concurrent=2), {"max_concurrent": 8})
    for limit in (3, None):
        with pytest.raises(InvalidConfig, match="can be 2 at most"):
            check_limit(limiter, {"max_concurrent": limit})


def test_the_goal_of_a_scheduler_is_not_a_difference() -> None:
    spec = ExperimentSpec(
        experiment_id="e", run="d2a66", trainable="train", seed=0,
        metric="epoch", mode="max", scheduler="ASHAScheduler",
    )  # fmt: skip
    scheduler = ASHAScheduler(metric="epoch", mode="max")
    said = tune.Tuner(train, tune_config=tune.TuneConfig(scheduler=scheduler))._request
    assert list(fixed_differences(spec, said)) == []


# -- stoppers over a restore ---------------------------------------------------------------------


class Counting(Stopper):
    """A user's own stopper, which counts the reports it has seen."""

    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        self.seen += 1
        return False


def test_a_stopper_is_after_a_restore_as_if_nothing_had_happened(fit: Any, tmp_path: Path) -> None:
    mended = tmp_path / "mended"

    def plateau(config: dict[str, Any]) -> None:
        for epoch in epochs():
            if epoch == 4 and not mended.exists():
                raise RuntimeError("not yet")
            tune.report({"loss": 9 if epoch == 1 else 1}, checkpoint=saved(epoch))

    stop = CombinedStopper(TrialPlateauStopper("loss", num_results=4), Counting())
    fit(plateau, name="run", stop=stop, failure_config=tune.FailureConfig(fail_fast=True))
    mended.touch()
    path = tmp_path / "results" / "run"
    tuner = tune.Tuner.restore(path, plateau, resume_errored=True)
    (result,) = tuner.fit()
    assert column(result, "training_iteration") == [1, 2, 3, 4, 5]
    shown: Any = tuner._request.run.stop
    _, counting = shown.stoppers
    assert counting.seen == 5


def test_an_answer_that_a_death_cut_off_is_given_before_anything_continues(
    fit: Any, tmp_path: Path
) -> None:
    def train(config: dict[str, Any]) -> None:
        for epoch in epochs():
            tune.report({"epoch": epoch}, checkpoint=saved(epoch))

    fit(train, name="run", stop=lambda trial_id, result: result["epoch"] >= 2)
    path = tmp_path / "results" / "run"
    cut_behind_the_newest_report(Layout(path))
    assert trials_in(path)[0].status == "RUNNING"
    (result,) = tune.Tuner.restore(path, train).fit()
    assert column(result, "epoch") == [1, 2]
    assert trials_in(path)[0].attempt == 1


def cut_behind_the_newest_report(layout: Layout) -> None:
    """As SIGKILL leaves it between the report and the stopper's answer."""
    payloads = [payload for payload, _ in read_segment(layout.journal, 0)]
    newest = max(at for at, payload in enumerate(payloads) if b"Reported" in payload[:12])
    shutil.rmtree(layout.journal)
    for snapshot in layout.root.glob("experiment_state-*"):
        snapshot.unlink()
    journal = Journal(layout.journal)
    journal.append(payloads[: newest + 1])
    journal.close()
