"""What is warned about before the first trial: a space in which nothing varies, half a goal."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import tune

CONFIG = {"metric": "loss", "mode": "min", "num_samples": 4}


def train(config: dict[str, Any]) -> None:
    tune.report({"loss": 1})


@pytest.fixture
def told(tmp_path: Any, capfd: pytest.CaptureFixture[str]) -> Any:
    def warnings(space: dict[str, Any], **config: Any) -> str:
        tuner = tune.Tuner(
            train,
            param_space=space,
            tune_config=tune.TuneConfig(**{**CONFIG, **config}),
            run_config=tune.RunConfig(name="run", storage_path=str(tmp_path)),
        )
        tuner.fit(resume="auto")
        return capfd.readouterr().err

    return warnings


@pytest.mark.parametrize(
    ("space", "meant"),
    [
        (
            {"lr": (0.001, 0.1)},
            "lr is a tuple, which is one value: did you mean tune.uniform(0.001, 0.1), "
            "tune.choice([0.001, 0.1]) or tune.grid_search([0.001, 0.1])?",
        ),
        ({"net": {"kind": ["a", "b"]}}, "net/kind is a list, which is one value: did you mean tu"),
        ({"layers": list(range(100))}, "tune.choice([...]) or tune.grid_search([...])?"),
    ],
)
def test_a_list_where_a_domain_is_meant_is_warned_about(told: Any, space: Any, meant: str) -> None:
    shown = told(space)
    assert "warning: nothing varies: all 4 trials get the same config. " in shown
    assert meant in shown


@pytest.mark.parametrize(
    ("space", "samples"),
    [
        ({"layers": [8, 8], "lr": tune.uniform(0, 1)}, 2),
        ({"layers": [8, 8]}, 1),
        ({"params": {"eval_metric": ["logloss", "error"]}}, 1),
        ({"seed": 1}, 2),
        ({}, 2),
    ],
)
def test_other_spaces_are_not_warned_about(told: Any, space: Any, samples: int) -> None:
    shown = told(space, num_samples=samples)
    assert "nothing varies" not in shown
    assert "is one value" not in shown


def test_a_list_of_different_values_for_a_single_trial_is_mentioned(told: Any) -> None:
    shown = told({"layers": [8, 8], "lr": [0.1, 0.2, 0.3]}, num_samples=1)
    assert "lr is one value, a list of 3. For a trial per value write tune.grid_search(" in shown
    assert shown.count("is one value") == 1


def test_a_forgotten_mode_is_warned_about_at_once_and_can_be_added_later(told: Any) -> None:
    assert "warning: TuneConfig(metric='loss') has no mode" in told({"a": 1}, mode=None)
    shown = told({"a": 1})
    assert "from now on, mode: was none, now min" in shown
    assert "has no mode" not in shown
    assert "best loss=1" in shown
    with pytest.raises(tune.TuneError, match="mode: was min, now max"):
        told({"a": 1}, mode="max")
