"""Objects of other libraries, as users write them by habit, are refused with what to write."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import tune
from holdfast.trial.errors import InvalidSearchSpace


def made(module: str, kind: str, **attributes: Any) -> Any:
    """An object of a class as the other library has it."""
    return type(kind, (), {"__module__": module, **attributes})()


OPTUNA, SCIPY = "optuna.distributions", "scipy.stats._distn_infrastructure"


@pytest.mark.parametrize(
    ("value", "write"),
    [
        (made(OPTUNA, "FloatDistribution", low=0.0, high=10.0, log=False, step=None),
         "tune.uniform(0, 10), or OptunaSearch(space={...}) for Optuna's distributions"),
        (made(OPTUNA, "FloatDistribution", low=1e-05, high=0.1, log=True, step=None),
         "tune.loguniform(1e-05, 0.1), or "),
        (made(OPTUNA, "FloatDistribution", low=0.0, high=1.0, log=False, step=0.25),
         "tune.quniform(0, 1, 0.25), or "),
        (made(OPTUNA, "IntDistribution", low=1, high=8, log=False, step=1),
         "tune.randint(1, 9), or "),
        (made(OPTUNA, "IntDistribution", low=1, high=8, log=True, step=1),
         "tune.lograndint(1, 9), or "),
        (made(OPTUNA, "IntDistribution", low=16, high=64, log=False, step=16),
         "tune.qrandint(16, 64, 16), or "),
        (made(OPTUNA, "CategoricalDistribution", choices=("a", 1)), "tune.choice(['a', 1]), or "),
        (made("hyperopt.pyll.base", "Apply"), "tune.uniform(low, high), tune.choice([...]) and"),
        (made(SCIPY, "rv_continuous_frozen", dist=made(SCIPY, "loguniform", name="loguniform")),
         "tune.loguniform(low, high)"),
        (made("ray.tune.search.sample", "Float"), "the same with `from holdfast import tune`"),
    ],
)  # fmt: skip
def test_a_distribution_of_another_library_is_no_silent_constant(value: Any, write: str) -> None:
    with pytest.raises(InvalidSearchSpace) as error:
        tune.Tuner(print, param_space={"net": {"lr": value}})
    text = str(error.value)
    assert text.startswith("param_space['net']['lr'] is ")
    assert f"'s {type(value).__name__}, which" in text
    assert f"which would be the same object in each trial: write {write}" in text


def test_other_objects_stay_constants() -> None:
    tune.Tuner(print, param_space={"model": made("mine.distributions", "FloatDistribution")})
