"""The signatures in docs/ have the parameters and defaults of the code; no class is missing."""

import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from holdfast.scheduler.policies.resource_changing import DistributeResources
from holdfast.tune import schedulers, search, stopper

DOCS = Path(__file__).parents[2] / "docs"
# Base classes for users, and classes with their own section.
ELSEWHERE = {"TrialScheduler", "Searcher", "LibrarySearch", "Stopper"} | {
    name for name in schedulers.__all__ if "Distribute" in name
}
ALIASES = {
    "AsyncHyperBandScheduler": "ASHAScheduler",
    "HyperBandForBOHB": "HyperBandScheduler",
}


def documented(page: str) -> dict[str, str]:
    """The text in parentheses after each class, in a block or in a table's first column."""
    text = (DOCS / page).read_text()
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S)
    plain = "\n".join(block for language, block in blocks if not language)
    found = re.findall(r"^([A-Z]\w+)\((.*?)\)(?=\s+#|$)", plain, re.M | re.S)
    found += re.findall(r"^\| `([A-Z]\w+)\((.*?)\)` \|", text, re.M)
    return {name: " ".join(parameters.split()) for name, parameters in found}


def parameters_of(function: Any) -> list[tuple[str, Any, Any]]:
    return [
        (one.name, one.kind, type(one.default) if _is_made(one.default) else one.default)
        for one in inspect.signature(function).parameters.values()
    ]


def _is_made(default: object) -> bool:
    return isinstance(default, DistributeResources)


@pytest.mark.parametrize(
    ("page", "module"),
    [("schedulers.md", schedulers), ("search.md", search), ("stoppers.md", stopper)],
)
def test_the_docs_show_each_class_with_its_parameters_and_defaults(
    page: str, module: ModuleType
) -> None:
    made = {"DistributeResources": DistributeResources}
    told = documented(page)
    classes = {name for name in module.__all__ if inspect.isclass(getattr(module, name))}
    assert told.keys() == classes - ELSEWHERE - ALIASES.keys()
    for name in classes - ELSEWHERE:
        wanted = eval(f"lambda {told[ALIASES.get(name, name)]}: None", made)
        assert parameters_of(wanted) == parameters_of(getattr(module, name)), name
