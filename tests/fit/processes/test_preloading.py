"""The second trial starts with the modules that the first one imported before its first report."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import train, tune
from holdfast.runtime.warm import succession

pytestmark = pytest.mark.process

ONE_AT_A_TIME = tune.TuneConfig(max_concurrent_trials=1)
TWO = {"trial": tune.grid_search([0, 1])}


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of trials for what is imported for them, on a machine that is busy."""
    monkeypatch.setattr(succession, "WAIT_S", (30.0, 30.0))


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution of one package with a module."""
    package = tmp_path / "site-packages" / "kelp"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("import kelp.blade")
    (package / "blade.py").write_text("")
    monkeypatch.syspath_prepend(str(package.parent))


def loaded() -> bool:
    return {"kelp", "kelp.blade"} <= sys.modules.keys()


def import_kelp(_: Any) -> None:
    was_loaded = loaded()
    import kelp  # type: ignore[import-not-found]  # noqa: F401

    tune.report({"was_loaded": was_loaded})


def reported(results: tune.ResultGrid, metric: str) -> list[Any]:
    return [(result.metrics or {})[metric] for result in results]


def test_a_function(fit: Any) -> None:
    assert reported(fit(import_kelp, TWO, ONE_AT_A_TIME), "was_loaded") == [False, True]


def test_not_where_the_user_does_not_want_it(fit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_PRELOAD", "0")
    assert reported(fit(import_kelp, TWO, ONE_AT_A_TIME), "was_loaded") == [False, False]


class ImportsKelp(tune.Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        self.was_loaded = loaded()
        import kelp  # noqa: F401

    def step(self) -> dict[str, Any]:
        return {"was_loaded": self.was_loaded, "done": True}


def test_a_class(fit: Any) -> None:
    assert reported(fit(ImportsKelp, TWO, ONE_AT_A_TIME), "was_loaded") == [False, True]


def test_ranks_that_train_one_trial(tmp_path: Path) -> None:
    def loop() -> None:
        was_loaded = loaded()
        import kelp  # noqa: F401

        train.report({"was_loaded": was_loaded})

    trainer = train.DataParallelTrainer(
        loop,
        scaling_config=train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
        run_config=train.RunConfig(name="run", storage_path=str(tmp_path / "results"), verbose=0),
    )
    tuner = tune.Tuner(trainer, param_space={"train_loop_config": TWO}, tune_config=ONE_AT_A_TIME)
    assert reported(tuner.fit(), "was_loaded") == [False, True]


def test_the_second_optimizer_of_torch_imports_nothing(fit: Any) -> None:
    pytest.importorskip("torch")

    def optimize(_: Any) -> None:
        import torch

        model = torch.nn.Linear(2, 2)
        before = set(sys.modules)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.zeros(1, 2)).sum().backward()
        optimizer.step()
        count = len(set(sys.modules) - before)
        threads = len(os.listdir(f"/proc/{os.getppid()}/task"))
        tune.report({"imported": count, "threads of the parent": threads})

    results = fit(optimize, TWO, ONE_AT_A_TIME)
    first, second = reported(results, "imported")
    assert first > 100
    assert second == 0
    # The process that forks has one, and jemalloc's where pyarrow is imported.
    assert max(reported(results, "threads of the parent")) <= 2
