"""A `fit()` that ends before its first record leaves no folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fsspec
import pytest

from holdfast import tune
from holdfast.syncer.uploader.lock import ExperimentLock
from holdfast.trial.errors import TuneError

IMPOSSIBLE = {"cpu": 9999}


def reports(config: dict[str, Any]) -> None:
    tune.report({"n": 1})


@pytest.mark.parametrize("name", [None, "run"])
def test_a_refused_fit_leaves_no_folder(fit: Any, tmp_path: Path, name: str | None) -> None:
    with pytest.raises(TuneError, match="no trial could ever start"):
        fit(tune.with_resources(reports, IMPOSSIBLE), name=name)
    assert list((tmp_path / "results").iterdir()) == []
    (result,) = fit(reports, name="run")
    assert result.metrics["n"] == 1


def test_a_refused_fit_into_a_storage_leaves_no_folder_on_this_machine(
    fit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, storage = tmp_path / "here", fsspec.filesystem("memory")
    monkeypatch.setenv("RAY_AIR_LOCAL_CACHE_DIR", str(here))
    with pytest.raises(TuneError, match="no trial could ever start"):
        fit(
            tune.with_resources(reports, IMPOSSIBLE),
            name="run",
            storage_path="refused",
            storage_filesystem=storage,
        )
    assert list(here.iterdir()) == []


def test_a_refused_fit_leaves_the_folder_that_was_there(fit: Any, tmp_path: Path) -> None:
    (mine := tmp_path / "results" / "run" / "mine").mkdir(parents=True)
    with pytest.raises(TuneError):
        fit(tune.with_resources(reports, IMPOSSIBLE), name="run")
    assert mine.exists()


def test_a_refused_second_fit_leaves_the_first_one(fit: Any, tmp_path: Path) -> None:
    fit(reports, name="run")
    with pytest.raises(TuneError, match="no trial could ever start"):
        fit(tune.with_resources(reports, IMPOSSIBLE), name="run")
    assert len(tune.load(str(tmp_path / "results" / "run"))) == 1


def test_what_a_script_has_put_into_the_folder_stays(fit: Any, tmp_path: Path) -> None:
    root = tmp_path / "results" / "run"

    def writes(config: dict[str, Any]) -> dict[str, float]:
        (root / "mine").write_text("kept")
        raise RuntimeError("not today")

    with pytest.raises(RuntimeError, match="not today"):
        fit(tune.with_resources(reports, writes), name="run")
    assert (root / "mine").read_text() == "kept"


def test_a_folder_that_another_process_locks_meanwhile_stays(
    fit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "results" / "run"

    class TakenMeanwhile(ExperimentLock):
        def __init__(self, path: Path, **settings: Any) -> None:
            other = ExperimentLock(path)
            try:
                super().__init__(path, **settings)
            finally:
                other.release()

    monkeypatch.setattr("holdfast.api.fit.ExperimentLock", TakenMeanwhile)
    with pytest.raises(TuneError, match="no trial could ever start"):
        fit(tune.with_resources(reports, IMPOSSIBLE), name="run")
    assert root.exists()
