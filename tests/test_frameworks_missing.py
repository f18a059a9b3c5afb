"""Without a framework, or with one that is too old, its first name says what to do."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from holdfast.lazy import Framework

NAMES = [
    ("tensorflow", "holdfast.train.tensorflow", "TensorflowTrainer", "2.16"),
    ("keras", "holdfast.train.tensorflow.keras", "ReportCheckpointCallback", "3"),
    ("lightning", "holdfast.train.lightning", "DDPStrategy", "2.2"),
    ("lightning", "holdfast.train.lightning", "prepare_trainer", "2.2"),
    ("lightning", "holdfast.tune.integration.pytorch_lightning", "TuneReportCallback", "2.2"),
    ("transformers", "holdfast.train.huggingface.transformers", "prepare_trainer", "4.45"),
    ("transformers", "holdfast.train.huggingface.transformers", "RayTrainReportCallback", "4.45"),
    ("xgboost", "holdfast.train.xgboost", "XGBoostTrainer", "2.1"),
    ("xgboost", "holdfast.train.xgboost", "RayTrainReportCallback", "2.1"),
    ("lightgbm", "holdfast.train.lightgbm", "LightGBMTrainer", "4"),
    ("lightgbm", "holdfast.train.lightgbm", "get_network_params", "4"),
]
LAZY = [one for one in NAMES if one[0] != "keras"]  # Keras is imported with the module
# The extra that brings it, if not one of its own name.
BROUGHT_BY = {"keras": "tensorflow"}
INTEGRATIONS = [("keras", "keras"), ("xgboost", "xgboost"), ("lightgbm", "lightgbm")]


@pytest.mark.parametrize(("extra", "module", "name", "_minimum"), NAMES)
def test_a_framework_that_is_missing_is_an_import_error_that_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, extra: str, module: str, name: str, _minimum: str
) -> None:
    monkeypatch.setitem(sys.modules, extra, None)
    # Its dependencies are missing, too, and no module of holdfast has been imported.
    monkeypatch.setitem(sys.modules, "torch", None)
    for found in [name for name in sys.modules if name.startswith("holdfast.train.")]:
        monkeypatch.delitem(sys.modules, found)
    with pytest.raises(
        ImportError, match=rf"is not installed: pip install .*'{BROUGHT_BY.get(extra, extra)}>="
    ) as told:
        getattr(importlib.import_module(module), name)
    assert told.value.name == extra


@pytest.mark.parametrize(("extra", "integration"), INTEGRATIONS)
def test_so_is_one_that_a_callback_for_tune_needs(
    monkeypatch: pytest.MonkeyPatch, extra: str, integration: str
) -> None:
    monkeypatch.setitem(sys.modules, extra, None)
    with pytest.raises(ImportError, match=rf"pip install .*'{BROUGHT_BY.get(extra, extra)}>="):
        importlib.import_module(f"holdfast.tune.integration.{integration}")


@pytest.mark.parametrize(("extra", "module", "name", "minimum"), NAMES)
def test_one_that_is_too_old_is_reported_with_the_version_that_is_needed(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    extra: str,
    module: str,
    name: str,
    minimum: str,
) -> None:
    (tmp_path / extra).mkdir()
    (tmp_path / extra / "__init__.py").touch()
    installed = tmp_path / f"{extra}-1.99.0rc1.dist-info"
    installed.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: {extra}\nVersion: 1.99.0rc1\n"
    (installed / "METADATA").write_text(metadata)
    monkeypatch.syspath_prepend(tmp_path)
    told = rf"1\.99\.0rc1 is too old: {minimum} or newer is needed: pip install --upgrade"
    with pytest.raises(ImportError, match=told):
        getattr(importlib.import_module(module), name)
    assert extra not in sys.modules  # told without its import


@pytest.mark.parametrize(("extra", "module", "name", "_minimum"), LAZY)
def test_a_name_that_is_not_there_says_so_also_without_the_framework(
    extra: str, module: str, name: str, _minimum: str
) -> None:
    found = importlib.import_module(module)
    with pytest.raises(AttributeError, match="no attribute 'Callbck'"):
        _ = found.Callbck
    assert name in dir(found)


def test_a_framework_without_a_package_is_taken_as_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "built_here.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    Framework(
        title="Built Here", module="built_here", extra="here", minimum="9", distributions=("here",)
    ).check()
