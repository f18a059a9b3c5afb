"""The page in the browser: its pure modules, its vendored libraries, what no script may do."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from holdfast.web.security import HEADERS

ROOT = Path(__file__).parent.parent.parent
STATIC = ROOT / "src" / "holdfast" / "web" / "static"
VENDOR = STATIC / "vendor"

# What would turn a text of an experiment into markup or code, or what the page's policy forbids.
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|dangerouslySet|createContextualFragment"
    r"|DOMParser|\beval\s*\(|new Function|javascript:|\bstyle=[\"']|setAttribute\([\"']style"
    r"|<[^>]*\son[a-z]+=[\"']"
)
HOSTS = re.compile(r"(?<!xmlns=\")(?:https?:)?//[a-z0-9-]+\.[a-z]")


def own_files() -> list[Path]:
    kinds = (".js", ".html", ".css", ".svg")
    found = [path for path in STATIC.rglob("*") if path.suffix in kinds]
    return [path for path in found if VENDOR not in path.parents]


def vendored() -> dict[str, str]:
    """The hash of each vendored file, as the table has it."""
    table = re.findall(
        r"^\| (\S+) \|.*\| ([0-9a-f]{64}) \|$", (VENDOR / "README.md").read_text(), re.M
    )
    return dict(table)


@pytest.mark.process
def test_the_pure_modules_of_the_page_pass_their_tests_in_node() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    tests = sorted(str(path) for path in (ROOT / "tests" / "web").rglob("*.test.js"))
    assert tests
    # All in one process: `node --test` would start one for each file.
    program = "".join(f"await import({json.dumps(path)});" for path in tests)
    done = subprocess.run(
        [node, "--input-type=module", "--eval", program],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_vendored_libraries_are_those_that_the_table_names() -> None:
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in VENDOR.iterdir()
        if path.name != "README.md"
    }
    assert found == vendored()


def test_each_vendored_library_has_its_licence() -> None:
    names = set(vendored())
    assert {"LICENSE-htm", "LICENSE-preact", "LICENSE-echarts", "LICENSE-zrender"} <= names


def test_no_script_makes_markup_or_code_of_a_text() -> None:
    assert len(own_files()) > 20
    found = [
        f"{path.relative_to(STATIC)}:{number}: {line.strip()[:120]}"
        for path in own_files()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if FORBIDDEN.search(line)
    ]
    assert found == []


def test_the_page_loads_nothing_from_another_host() -> None:
    found = [
        f"{path.relative_to(STATIC)}: {match[0]}"
        for path in own_files()
        for match in HOSTS.finditer(path.read_text())
        if "www.w3.org" not in path.read_text()[match.start() : match.start() + 30]
    ]
    assert found == []


@pytest.mark.parametrize(
    "code", ["x.innerHTML = y", '<p style="a">', "eval (x)", '<a onclick="x">']
)
def test_what_is_forbidden_would_be_found(code: str) -> None:
    assert FORBIDDEN.search(code)


def test_every_module_that_is_imported_exists() -> None:
    missing = [
        f"{path.relative_to(STATIC)} imports {name}"
        for path in STATIC.rglob("*.js")
        if VENDOR not in path.parents
        for name in re.findall(r"(?:from|import)\s*\(?\s*\"(\.[^\"]+)\"", path.read_text())
        if not (path.parent / name).is_file()
    ]
    assert missing == []


def test_the_page_loads_all_modules_that_it_begins_with_at_once() -> None:
    """Without a link for each, the browser finds the next ones only in those that it has."""
    page = (STATIC / "index.html").read_text()
    linked = re.findall(r'<link rel="modulepreload" href="static/([^"]+)">', page)
    assert sorted(linked) == sorted(modules_from(STATIC / "js" / "main.js"))


def test_the_policy_allows_the_script_in_the_page_and_no_other() -> None:
    (script,) = re.findall(r"<script>(.*?)</script>", (STATIC / "index.html").read_text(), re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'self' 'sha256-{digest}';" in HEADERS["content-security-policy"]


def modules_from(first: Path) -> set[str]:
    """The modules that this one imports, and those that these import, and so on."""
    found, left = set[Path](), [first]
    while left:
        path = left.pop()
        names = re.findall(r'^(?:import|export)\b[^;]*?"(\.[^"]+)"', path.read_text(), re.M)
        new = {(path.parent / name).resolve() for name in names} - found
        found |= new
        left += [path for path in new if VENDOR not in path.parents]
    return {str(path.relative_to(STATIC)) for path in found}
