"""The shortest whole run: it reports, ends, and its results are read again without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast import tune


def train(config: dict[str, Any]) -> None:
    for step in (1, 2):
        tune.report({"loss": config["x"] / step})


def test_fit_returns_what_load_reads(tmp_path: Path) -> None:
    tuner = tune.Tuner(
        train,
        param_space={"x": tune.grid_search([1.0, 2.0])},
        tune_config=tune.TuneConfig(metric="loss", mode="min"),
        run_config=tune.RunConfig(name="run", storage_path=str(tmp_path), verbose=0),
    )
    results = tuner.fit()
    assert results.best.config == {"x": 1.0}
    loaded = tune.load(str(tmp_path / "run"))
    assert [result.metrics for result in loaded] == [result.metrics for result in results]
    assert [row["loss"] for row in loaded.best.rows()] == [1.0, 0.5]
