"""The public modules and the names that each one offers, read from their source.

A module lists its names in `__all__`. Where `holdfast.lazy` makes that list, the names are those
imported under `if TYPE_CHECKING:`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"

# The pages of the reference, and their modules. A name that several modules export is described
# in the first one.
PAGES = {
    "holdfast": ["holdfast"],
    "holdfast.tune": ["holdfast.tune"],
    "holdfast.tune.schedulers": ["holdfast.tune.schedulers"],
    "holdfast.tune.search": ["holdfast.tune.search"],
    "holdfast.tune.stopper": ["holdfast.tune.stopper"],
    "holdfast.tune.logger": ["holdfast.tune.logger"],
    "holdfast.train": ["holdfast.train", "holdfast.train.collective"],
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
    "holdfast.tune.utils": ["holdfast.tune.utils"],
    "holdfast.data": [
        "holdfast.data",
        "holdfast.data.preprocessors",
    ],
    "holdfast.air": ["holdfast.air", "holdfast.air.session"],
    "holdfast.air.integrations": [
        "holdfast.air.integrations.comet",
        "holdfast.air.integrations.mlflow",
        "holdfast.air.integrations.wandb",
    ],
    "holdfast.cluster": ["holdfast.cluster"],
    "holdfast.simulate": ["holdfast.simulate"],
}


def names_of(module: str) -> list[str]:
    """The public names of `module`."""
    listed = listed_names(module)
    if listed is not None:
        return listed
    for line in _body(module):
        if isinstance(line, ast.If) and ast.unparse(line.test) == "TYPE_CHECKING":
            return [name for inner in line.body for name in _named(module, inner)]
    raise ValueError(f"{module} has neither a list __all__ nor imports under TYPE_CHECKING")


def listed_names(module: str) -> list[str] | None:
    """The list that is `__all__` in the source; None where `holdfast.lazy` makes `__all__`."""
    for line in _body(module):
        if (
            isinstance(line, ast.Assign)
            and _assigns_all(line)
            and isinstance(line.value, ast.List)
        ):
            return [str(name) for name in ast.literal_eval(line.value)]
    return None


def modules_with_names() -> Iterator[str]:
    """Every module of the public packages that has an `__all__`."""
    package = SOURCE / "holdfast"
    files = [package / "__init__.py", package / "cluster.py"]
    for room in ["air", "data", "simulate", "train", "tune"]:
        files += sorted((package / room).rglob("*.py"))
    for file in files:
        if any(map(_assigns_all, ast.parse(file.read_text()).body)):
            parts = file.relative_to(SOURCE).with_suffix("").parts
            yield ".".join(parts).removesuffix(".__init__")


def _named(module: str, line: ast.stmt) -> list[str]:
    match line:
        case ast.ImportFrom(module=home, names=names) if home != module:  # else modules of it
            return [one.asname or one.name for one in names]
        case ast.Assign(targets=[ast.Name(id=name)]):
            return [name]
        case _:
            return []


def _body(module: str) -> list[ast.stmt]:
    return ast.parse(_file(module).read_text()).body


def _file(module: str) -> Path:
    where = SOURCE.joinpath(*module.split("."))
    package = where / "__init__.py"
    return package if package.exists() else where.with_suffix(".py")


def _assigns_all(line: ast.stmt) -> bool:
    return isinstance(line, ast.Assign) and any(
        isinstance(one, ast.Name) and one.id == "__all__"
        for target in line.targets
        for one in ast.walk(target)
    )
