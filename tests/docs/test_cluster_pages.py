"""The pages about clusters: one for each engine, which begins with a script that works, and lists
every option."""

from __future__ import annotations

import ast
import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.experiment.nodes.cluster_config import CLUSTERS, Local, NodeTerms, cluster_of_uri

DOCS = Path(__file__).parents[2] / "docs"
OVERVIEW = (DOCS / "cluster.md").read_text()
PAGES = {kind: (DOCS / f"cluster-{kind.__name__.lower()}.md").read_text() for kind in CLUSTERS}
TERMS = {field.name for field in dataclasses.fields(NodeTerms)}
# What each page says, in this order.
HEADINGS = ["What it needs", "When things die", "Logs", "Options", "Limits"]
OPTION = re.compile(r"^\| `(\w+)` \| (?:`([^`|]*)`|(required)) \|", re.M)
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
URI = re.compile(r"\b((?:local|ssh|slurm|dask|ray)://[^\s`']*)(?=[`'\s])")
kinds = pytest.mark.parametrize("kind", CLUSTERS, ids=lambda kind: kind.__name__)


def options(text: str) -> dict[str, str]:
    return {name: default or required for name, default, required in OPTION.findall(text)}


def defaults(fields: Mapping[str, dataclasses.Field[Any]]) -> dict[str, str]:
    missing = dataclasses.MISSING
    return {
        name: "required" if field.default is missing else repr(field.default).replace("'", '"')
        for name, field in fields.items()
    }


def fields_of(kind: type[Any]) -> dict[str, dataclasses.Field[Any]]:
    return {field.name: field for field in dataclasses.fields(kind)}


def script_of(kind: type[Any]) -> str:
    """What stands before the first sentence of the page, or just after one."""
    title, _, rest = PAGES[kind].partition("\n")
    before, code = rest.split("```python\n")[:2]
    assert title.startswith("# ")
    assert len(before.strip().splitlines()) <= 1, "a page begins with its script"
    return code.split("```")[0]


@kinds
def test_a_page_lists_every_option_with_its_default(kind: type[Any]) -> None:
    own = {name: field for name, field in fields_of(kind).items() if name not in TERMS}
    assert options(PAGES[kind]) == defaults(own)


def test_the_overview_lists_the_options_of_all() -> None:
    assert options(OVERVIEW) == defaults(fields_of(NodeTerms))


@kinds
def test_a_page_says_the_same_things_in_the_same_order(kind: type[Any]) -> None:
    found = re.findall(r"^## (.*)$", PAGES[kind], re.M)
    assert [heading for heading in found if heading in HEADINGS] == HEADINGS


@kinds
def test_the_scripts_differ_only_in_their_cluster(kind: type[Any]) -> None:
    """So a run of one of them shows that all are right."""
    shown, ours = ast.parse(script_of(kind)), ast.parse(script_of(Local))
    assert ast.dump(without_places(shown)) == ast.dump(without_places(ours))


def without_places(code: ast.AST) -> ast.AST:
    """The code without its cluster and its storage."""

    class Places(ast.NodeTransformer):
        def visit_keyword(self, node: ast.keyword) -> ast.AST:
            if node.arg in ("cluster", "storage_path"):
                node.value = ast.Constant(None)
            return self.generic_visit(node)

    Places().visit(code)
    return code


@kinds
def test_the_clusters_in_the_text_are_valid(kind: type[Any]) -> None:
    for text in (OVERVIEW, PAGES[kind]):
        clusters = [made for block in BLOCK.findall(text) for made in clusters_in(block)]
        assert clusters
        for made in clusters:
            eval(made, {"holdfast": holdfast, "client": object()})
        for uri in URI.findall(text):
            if "<" not in uri:
                cluster_of_uri(uri.rstrip(".,;"), {}, where="the page")


def clusters_in(code: str) -> list[str]:
    """The values of `cluster=`."""
    nodes = ast.walk(ast.parse(code))
    given = [node for node in nodes if isinstance(node, ast.keyword) and node.arg == "cluster"]
    return [ast.unparse(one.value) for one in given]


@pytest.mark.process
def test_the_script_runs_as_it_stands(tmp_path: Path) -> None:
    script = tmp_path / "first.py"
    script.write_text(script_of(Local).replace("/tmp/results", str(tmp_path / "results")))
    done = subprocess.run(
        [sys.executable, str(script)],
        env=os.environ | {"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("{'x': ")
    assert re.search(r"^trial +status +node ", done.stderr, re.M), "trials have no node"
