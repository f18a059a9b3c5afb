"""A worker's list of imports is data: checked before it is used."""

from __future__ import annotations

import math
import os
import sysconfig
from typing import Any

import pytest

from holdfast.runtime import learning
from holdfast.runtime.learning import CodeOrigin, checked, is_installed, origin_of


def test_dotted_names_are_taken() -> None:
    assert checked(["torch", "torch._dynamo.config"], 1.5) == (
        ["torch", "torch._dynamo.config"],
        1.5,
    )


@pytest.mark.parametrize(
    "names",
    [
        None,
        "torch",
        [b"torch"],
        [1],
        [["torch"]],
        [""],
        ["."],
        ["torch."],
        ["..torch"],
        ["../torch"],
        ["torch; import os"],
        ["torch\n"],
        ["tor\N{CYRILLIC SMALL LETTER ES}h"],
        ["pip.__main__"],
        ["__main__"],
        ["a" * (learning.LONGEST_NAME + 1)],
        ["a"] * (learning.MOST_MODULES + 1),
    ],
    ids=lambda names: repr(names)[:30],
)
def test_what_is_not_a_list_of_names_is_refused(names: Any) -> None:
    with pytest.raises(ValueError, match="not "):
        checked(names, 1.0)


@pytest.mark.parametrize("took_s", [None, "1", 1, -1.0, math.nan, math.inf])
def test_what_is_not_a_time_is_refused(took_s: Any) -> None:
    with pytest.raises(ValueError, match="not a number of seconds"):
        checked(["torch"], took_s)


def test_code_is_known_by_its_file() -> None:
    found = sysconfig.get_paths()
    assert origin_of(os.__file__) is CodeOrigin.STANDARD
    assert origin_of("built-in") is origin_of("<frozen os>") is CodeOrigin.STANDARD
    assert origin_of("<frozen importlib._bootstrap>") is CodeOrigin.IMPORTING
    assert (
        origin_of(os.path.join(found["purelib"], "torch", "__init__.py"))
        is CodeOrigin.DISTRIBUTION
    )
    assert origin_of(learning.__file__) is CodeOrigin.HOLDFAST
    assert origin_of(__file__) is CodeOrigin.USER
    assert origin_of("<string>") is CodeOrigin.USER


def test_packages_are_looked_for_without_importing_them() -> None:
    assert is_installed("antigravity")
    assert is_installed("holdfast")
    assert not is_installed("tests")
    assert not is_installed("no_such_package")
    assert not is_installed("__main__")


def test_without_a_watch_nothing_is_learned() -> None:
    assert learning.end_watch() is None
