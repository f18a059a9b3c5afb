"""An error of a setting ends at the user's own line, with at most two frames of holdfast."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast import train, tune
from holdfast.errors import TuneError
from tests.rig import ROOT


def report(config: dict[str, Any]) -> None:
    tune.report({"loss": 1})


@pytest.mark.parametrize(
    "call",
    [
        lambda: tune.uniform(3, 1),
        lambda: tune.RunConfig(stop="x"),  # type: ignore[arg-type]
        lambda: tune.TuneConfig(mode="maximize"),  # type: ignore[arg-type]
        lambda: tune.schedulers.ASHAScheduler(max_t=0),
        lambda: tune.with_resources(report, {"cpus": "a"}),  # type: ignore[dict-item]
        lambda: tune.Tuner(3),
        lambda: train.ScalingConfig(num_workers=0),
        lambda: train.DataParallelTrainer(3),  # type: ignore[arg-type]
        lambda: holdfast.init(cluster="ssh://"),
    ],
)
def test_an_error_of_a_setting_shows_the_users_line(call: Callable[[], Any]) -> None:
    with pytest.raises(TuneError) as raised:
        call()
    files = [one.filename for one in traceback.extract_tb(raised.value.__traceback__)]
    assert sum(one.startswith(f"{ROOT}/") and "/tests/" not in one for one in files) <= 2
