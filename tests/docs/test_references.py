"""The files and functions that the documentation names exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# docs/adding.md names files that its reader will create: tests/test_contributing.py writes them.
DOCS = sorted(page for page in (ROOT / "docs").glob("*.md") if page.name != "adding.md")
EXAMPLES = ("train", "lightning", "transformers", "tracking")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS, ROOT / "tests" / "README.md"]
READMES = [ROOT / "examples" / name / "README.md" for name in EXAMPLES]
# A user's own folder may be called results, too.
ROOMS = (
    r"experiment|results(?=[\w/]+\.py)|runtime|scheduler|syncer|trial|src|tests|benchmarks|scripts|"
    "examples"
)
# `path/file.py`, `path/file.py:Class.method` or `path/folder/`.
REFERENCE = re.compile(rf"`((?:{ROOMS})/[\w./-]*?)(?::(\w+)(?:\.(\w+))?)?`")


@cache
def names(path: Path) -> dict[str, set[str]]:
    """The names that a module defines, with the methods of its classes."""
    found: dict[str, set[str]] = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            inner = node.body if isinstance(node, ast.ClassDef) else []
            found[node.name] = {getattr(one, "name", "") for one in inner}
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {one.id: set() for one in targets if isinstance(one, ast.Name)}
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_is_there(page: Path) -> None:
    for path, outer, inner in REFERENCE.findall(page.read_text()):
        assert (ROOT / path).exists(), path
        if outer:
            known = names(ROOT / path)
            assert outer in known, f"{path}:{outer}"
            assert not inner or inner in known[outer], f"{path}:{outer}.{inner}"


@pytest.mark.parametrize("page", READMES, ids=lambda page: page.parent.name)
def test_what_the_page_of_an_example_names_is_there(page: Path) -> None:
    said = re.findall(r"`(\w+)\.(\w+)`", page.read_text())
    named = [(module, name) for module, name in said if page.with_name(f"{module}.py").exists()]
    assert named
    for module, name in named:
        assert name == "py" or name in names(page.with_name(f"{module}.py")), f"{module}.{name}"


def test_defaults_in_the_text_are_those_of_the_code() -> None:
    """`HOLDFAST_X_S` (30 s) in any page, and the table in layout.md."""
    said = re.compile(r"`(HOLDFAST_\w+_S)`(?: \(| \| )(\d+)(?: s\b| \|)")
    code = (ROOT / "experiment" / "folder" / "settings.py").read_text()
    defaults = dict(re.findall(r'_seconds\(environ, "(HOLDFAST_\w+)", ([\d.]+)\)', code))
    assert len(defaults) > 8
    found = {
        (page.name, name, float(seconds))
        for page in PAGES
        for name, seconds in said.findall(page.read_text())
    }
    assert {name for _, name, _ in found} == defaults.keys()
    assert [one for one in found if one[2] != float(defaults[one[1]])] == []
