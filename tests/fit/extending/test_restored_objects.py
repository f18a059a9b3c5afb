"""Searchers, schedulers, stoppers and trainers over a restore; trials that have failed."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.start.restoring import check_limit, fixed_differences
from holdfast.scheduler.events import ExperimentSpec
from holdfast.syncer.journal.journal import Journal, read_segment
from holdfast.trial.errors import InvalidConfig
from holdfast.tune.schedulers import ASHAScheduler
from holdfast.tune.search import BasicVariantGenerator, ConcurrencyLimiter, Searcher
from holdfast.tune.stopper import CombinedStopper, Stopper, TrialPlateauStopper
from tests.fit.extending.trained import column, epochs, newest, train, trials_in
from tests.rig.epochs import saved


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
    assert re.findall(r"To retry the failed trials: correct the code and (.+)", told) == [
        "run it with fit(resume='auto')",
        "start this script again",
    ]
    # No command can name a function inside a function: the stored one would run again.
    stored = re.findall(r"  or, with the code as it was: (.+)", told)
    assert all(one.endswith(f"holdfast resume {root} --restart-errored") for one in stored)
    assert len(stored) == 2
    assert tune.Tuner.restore(tmp_path / "run").fit().num_errors == 1
    told, retry = capfd.readouterr().err, "restore(..., restart_errored=True) or "
    assert f"run was finished (1 trial failed; {retry}" in told
    assert f"{shell})" in told


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
