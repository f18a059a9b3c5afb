"""Each public name of Ray has a state, and the state is true."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from enum import EnumType
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from holdfast.compat.advice import table, tables
from holdfast.ray_names import names as states
from holdfast.ray_names.checking import object_of
from holdfast.ray_names.names import home_of, served

ROOT = Path(__file__).parents[2]
FACTS: dict[str, dict[str, list[str] | None]] = json.loads(
    Path(__file__).with_name("facts.json").read_text()
)


@cache
def slugs() -> set[str]:
    """The headings of docs/differences.md, as links name them."""
    text = (ROOT / "docs" / "differences.md").read_text()
    titles = re.findall(r"^## (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def parameters(found: Any) -> set[str] | None:
    """The parameters of holdfast's object; None if it takes any, or is not called, as an enum."""
    if isinstance(found, EnumType):
        return None  # the call of an enum differs between versions of Python
    try:
        here = inspect.signature(found).parameters
    except (TypeError, ValueError):
        return None
    if any(one.kind is one.VAR_KEYWORD for one in here.values()):
        return None
    return set(here)


@pytest.mark.parametrize("path", FACTS)
def test_each_name_of_a_module_has_a_state_that_is_true(path: str) -> None:
    assert [problem for name in FACTS[path] for problem in problems(path, name)] == []


def problems(path: str, name: str) -> Iterator[str]:
    found = object_of(path, name)
    state = states.state_of(path, name, is_here=found is not None)
    if state is None:
        yield f"{name} is neither in holdfast nor in the table of missing names"
        return
    if state.kind != "same" and state.section not in slugs():
        yield f"{name}: there is no section {state.section}"
    if found is None or isinstance(found, str):
        return  # missing, or its library is not installed here
    module, listed = home_of(path)
    known = states.parameters(module, name if listed is None else listed.get(name, name))
    theirs = {one.partition("=")[0] for one in FACTS[path][name] or () if one[0] != "*"}
    here = parameters(found)
    if here is not None and (new := theirs - here - set(known)):
        yield f"{name}: the table says nothing about the parameters {sorted(new)}"
    if here is not None and (old := here & set(known)):
        yield f"{name} has the parameters {sorted(old)}, which the table says are missing"


def test_the_tables_name_what_is_there() -> None:
    for full in states.differences():
        path, _, name = full.rpartition(".")
        assert object_of(path, name) is not None, full
    for full in table("parameters"):
        path, _, name = full.rpartition(".")
        assert object_of(path, name) is not None, full
    there = {*table("older"), *served()}  # only `ray` has them
    for one in tables()["instead"]:
        for full in (f"{one['of']}.{name}".lstrip(".") for name in one["names"].split()):
            path, _, name = full.rpartition(".")
            assert full in there or object_of(path, name) is None, full


def test_every_other_path_leads_to_a_module_that_is_served() -> None:
    assert {home_of(path)[0] for path in served()} <= served()


def test_the_page_of_names_is_current() -> None:
    checked = [sys.executable, str(ROOT / "scripts" / "ray-names"), "--check"]
    done = subprocess.run(checked, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
