"""Async functions: refused, because a call of one runs nothing."""

from __future__ import annotations

import asyncio
import functools
import warnings
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast import train, tune
from holdfast.trial.errors import InvalidConfig

REFUSED = "which nothing would run here: write an ordinary function that runs it"


async def learn(config: dict[str, Any], data: int = 0) -> None:
    tune.report({"loss": 1})


async def stream(config: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    yield {"loss": 1}


class Model(tune.Trainable):
    async def step(self) -> dict[str, Any]:  # type: ignore[override]
        return {"loss": 1}


@pytest.mark.parametrize(
    "make",
    [
        lambda: learn,
        lambda: stream,
        lambda: Model,
        lambda: functools.partial(learn, data=1),
        lambda: tune.with_parameters(learn, data=1),
        lambda: tune.with_resources(learn, {"cpu": 1}),
        lambda: train.DataParallelTrainer(learn),
    ],
)
def test_an_async_function_is_refused_before_anything_runs(make: Any, fit: Any) -> None:
    with pytest.raises(InvalidConfig, match=REFUSED):
        fit(make())


@pytest.mark.process
@pytest.mark.parametrize("function", [learn, stream])
def test_what_hides_an_async_function_fails_its_trial(function: Any, fit: Any) -> None:
    (result,) = fit(lambda config: function(config))
    assert f"{function.__name__}() is async" in str(result.error)
    assert REFUSED in str(result.error)


@pytest.mark.process
def test_a_training_loop_that_has_not_run_fails(trainer: Any) -> None:
    def loop(config: dict[str, Any]) -> Any:
        yield {"loss": 1}

    with pytest.raises(train.TrainingFailedError, match=REFUSED):
        trainer(loop, workers=1).fit()


@pytest.mark.process
def test_a_function_that_runs_it_reports(fit: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (result,) = fit(lambda config: asyncio.run(learn(config)))
    assert result.metrics["loss"] == 1
