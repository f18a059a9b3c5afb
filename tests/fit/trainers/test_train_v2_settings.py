"""What Train V2 added to the settings of trainings and trials."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import train, tune
from holdfast.trial.errors import InvalidConfig
from tests.fit.conftest import Trainer

pytestmark = pytest.mark.process


def told(result: train.Result) -> dict[str, Any]:
    assert result.metrics is not None
    return dict(result.metrics)


def test_settings_have_rays_positions_and_names() -> None:
    scaling = train.ScalingConfig(None, 2, False, {"CPU": 2}, "SPREAD", "A100", {"zone": "a"})
    assert (scaling.max_workers, scaling.min_workers, scaling.elasticity_enabled) == (2, 2, False)
    assert scaling.without_effect == {"label_selector": {"zone": "a"}, "accelerator_type": "A100"}
    failure = train.FailureConfig(1, False, 3, 2, True, 7.0)
    assert (failure.max_preemptions, failure.preemption_grace_s) == (2, 7.0)
    assert train.FailureConfig(max_preemptions=4).max_preemptions == 4
    run = train.RunConfig(worker_runtime_env={"env_vars": {"A": "1"}})
    assert getattr(run.runtime_env, "env_vars", None) == {"A": "1"}


@pytest.mark.parametrize(
    ("make", "fact"),
    [
        (lambda: train.ScalingConfig(use_tpu=True), "there are no TPUs here"),
        (
            lambda: train.FailureConfig(max_preemptions=1, max_preemption_failures=2),
            "two names of one setting",
        ),
        (
            lambda: train.RunConfig(runtime_env={}, worker_runtime_env={}),
            "two names of one setting",
        ),
        (lambda: train.LoggingConfig("loud"), "log_level='loud'"),
        (lambda: train.RunConfig(logging_config="INFO"), "must be a LoggingConfig"),  # type: ignore[arg-type]
        (lambda: tune.TuneConfig(chdir_to_trial_dir="no"), "must be True or False"),  # type: ignore[arg-type]
    ],
)
def test_settings_that_are_not_valid_are_refused(make: Callable[[], Any], fact: str) -> None:
    with pytest.raises(InvalidConfig, match=fact):
        make()


def test_labels_are_ignored_with_one_line(
    trainer: Trainer, capsys: pytest.CaptureFixture[str]
) -> None:
    scaling = train.ScalingConfig(num_workers=1, label_selector={"zone": "a"})
    trainer(lambda: None, scaling_config=scaling)
    assert capsys.readouterr().err.startswith(
        "holdfast: ScalingConfig(label_selector) is ignored: machines have no labels here."
    )


def test_trials_stay_in_the_scripts_directory_also_after_a_restore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def where(config: dict[str, Any]) -> None:
        tune.report({"cwd": os.getcwd(), "origin": os.environ["TUNE_ORIG_WORKING_DIR"]})
        if not Path("flag").exists():
            Path("flag").touch()
            raise RuntimeError("not this time")

    run = tune.RunConfig(name="run", storage_path=str(tmp_path / "results"), verbose=0)
    stays = tune.TuneConfig(chdir_to_trial_dir=False)
    tune.Tuner(where, tune_config=stays, run_config=run).fit()
    path = str(tmp_path / "results" / "run")
    (result,) = tune.Tuner.restore(path, where, restart_errored=True).fit()
    assert told(result)["cwd"] == told(result)["origin"] == str(tmp_path)


def test_the_variable_for_the_scripts_directory_is_undone_after_a_trial_in_the_script(
    fit: Any,
) -> None:
    def where(config: dict[str, Any]) -> None:
        tune.report({"origin": os.environ["TUNE_ORIG_WORKING_DIR"]})

    before = os.getcwd()
    holdfast.init(local_mode=True)
    assert told(fit(where)[0])["origin"] == before
    assert "TUNE_ORIG_WORKING_DIR" not in os.environ
