"""The error if Lightning or Transformers is missing or too old."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

NAMES = [
    ("holdfast.train.lightning", "RayDDPStrategy", "Lightning", "lightning"),
    ("holdfast.train.lightning", "prepare_trainer", "Lightning", "lightning"),
    (
        "holdfast.tune.integration.pytorch_lightning",
        "TuneReportCallback",
        "Lightning",
        "lightning",
    ),
    (
        "holdfast.train.huggingface.transformers",
        "RayTrainReportCallback",
        "Transformers",
        "transformers",
    ),
]
pytestmark = pytest.mark.parametrize(("module", "name", "title", "library"), NAMES)


def test_a_missing_framework_is_an_error_that_names_the_package(
    module: str, name: str, title: str, library: str
) -> None:
    with pytest.raises(ImportError, match=rf"{title} is not installed: .*'{library}>="):
        getattr(importlib.import_module(module), name)


def test_one_that_is_too_old_is_an_error_that_names_the_version(
    module: str,
    name: str,
    title: str,
    library: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / library).mkdir()
    (tmp_path / library / "__init__.py").touch()
    told = tmp_path / f"{library}-1.9.4.dist-info"
    told.mkdir()
    (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {library}\nVersion: 1.9.4\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        ImportError, match=rf"{title} 1\.9\.4 is too old: \d\S+ or newer is needed"
    ):
        getattr(importlib.import_module(module), name)
    assert library not in sys.modules


def test_another_name_is_not_an_attribute(
    module: str, name: str, title: str, library: str
) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Callbck'"):
        _ = importlib.import_module(module).Callbck
