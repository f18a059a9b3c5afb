"""The public modules and the names that each one offers, read from their source.

A module lists its names in `__all__`. Where that is `list(_HOMES)`, the table `_HOMES` also says
where each name is defined (see `holdfast.lazy`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"

# A page of the reference, and the modules on it. A name that several modules offer is described
# where it comes first.
PAGES = {
    "holdfast": ["holdfast"],
    "holdfast.tune": ["holdfast.tune"],
    "holdfast.tune.schedulers": ["holdfast.tune.schedulers"],
    "holdfast.tune.search": ["holdfast.tune.search"],
    "holdfast.tune.stopper": ["holdfast.tune.stopper"],
    "holdfast.tune.logger": ["holdfast.tune.logger"],
    "holdfast.train": ["holdfast.train"],
    "holdfast.train.torch": ["holdfast.train.torch"],
    "holdfast.train.lightning": ["holdfast.train.lightning"],
    "holdfast.train.huggingface": ["holdfast.train.huggingface.transformers"],
    "holdfast.train.tensorflow": ["holdfast.train.tensorflow", "holdfast.train.tensorflow.keras"],
    "holdfast.train.xgboost": ["holdfast.train.xgboost"],
    "holdfast.train.lightgbm": ["holdfast.train.lightgbm"],
    "holdfast.tune.integration": [
        "holdfast.tune.integration.keras",
        "holdfast.tune.integration.lightgbm",
        "holdfast.tune.integration.pytorch_lightning",
        "holdfast.tune.integration.xgboost",
    ],
    "holdfast.data": ["holdfast.data"],
    "holdfast.air.integrations": [
        "holdfast.air.integrations.comet",
        "holdfast.air.integrations.mlflow",
        "holdfast.air.integrations.wandb",
    ],
    "holdfast.simulate": ["holdfast.simulate"],
}


def names_of(module: str) -> list[str]:
    """What `module` offers, in its own order. Raises ValueError where its `__all__` is neither
    a list of names nor `list(_HOMES)`."""
    assigned = _assigned(_file(module))
    names = assigned.get("__all__")
    if isinstance(names, ast.Call) and ast.unparse(names) == "list(_HOMES)":
        homes = assigned["_HOMES"]
        assert isinstance(homes, ast.Dict)
        return [ast.literal_eval(key) for key in homes.keys if key is not None]
    try:
        return [str(name) for name in ast.literal_eval(names)] if names else []
    except ValueError as error:
        raise ValueError(f"{module}.__all__ must be a list of names, or list(_HOMES)") from error


def modules_with_names() -> Iterator[str]:
    """Every module of the public packages that has an `__all__`."""
    package = SOURCE / "holdfast"
    for room in ["air", "data", "simulate", "train", "tune"]:
        for file in sorted((package / room).rglob("*.py")):
            if "__all__" in _assigned(file):
                parts = file.relative_to(SOURCE).with_suffix("").parts
                yield ".".join(parts).removesuffix(".__init__")


def _file(module: str) -> Path:
    where = SOURCE.joinpath(*module.split("."))
    return where / "__init__.py" if where.is_dir() else where.with_suffix(".py")


def _assigned(file: Path) -> dict[str, ast.expr]:
    return {
        target.id: node.value
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
