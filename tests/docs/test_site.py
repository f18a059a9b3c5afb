"""The inputs of scripts/docs: the lists of public names, and links between pages."""

from __future__ import annotations

import importlib
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from docs.site import built, diagram, public_names, repository
from holdfast.trial.trial import Status

PUBLIC = [module for modules in public_names.PAGES.values() for module in modules]


def test_every_public_module_is_on_a_page() -> None:
    assert set(public_names.modules_with_names()) == set(PUBLIC)
    assert len(PUBLIC) == len(set(PUBLIC))


@pytest.mark.parametrize(
    "module", [module for module in PUBLIC if public_names.listed_names(module) is None]
)
def test_the_names_in_the_source_are_those_that_lazy_makes(module: str) -> None:
    found = importlib.import_module(module)
    assert sorted(public_names.names_of(module)) == sorted(found.__all__)


@pytest.mark.parametrize(
    ("origin", "target", "page"),
    [
        ("README.md", "docs/design.md#the-rooms", "design.md#the-rooms"),
        ("README.md", "examples", "examples/README.md"),
        ("README.md", "examples/train/README.md#files", "examples/train/README.md#files"),
        ("docs/search.md", "../README.md", "index.md"),
        ("README.md", "CHANGELOG.md", "project/CHANGELOG.md"),
        ("docs/search.md", "../.gitignore", "project/gitignore.md"),
        ("docs/schedulers.md", "../examples/search/asha.py", "examples/search/asha.py.md"),
        ("docs/design.md", "lifecycle.md", "lifecycle.md"),
        ("examples/train/README.md", "../../docs/layout.md", "../../layout.md"),
        ("examples/train/README.md", "checkpoints.py", "checkpoints.py.md"),
    ],
)
def test_a_link_to_a_file_leads_to_the_page_of_that_file(
    origin: str, target: str, page: str
) -> None:
    assert repository.link_to(origin, target) == page


@pytest.mark.parametrize("target", ["docs/nothing.md", "../outside.md", "docs/design"])
def test_a_link_to_no_file_is_refused(target: str) -> None:
    with pytest.raises(repository.BrokenLink, match=r"README\.md"):
        repository.linked("README.md", target)


def test_links_are_changed_and_code_is_not() -> None:
    text = """[a](x.md) ![b](y.png "title") `[c](z.md)` [d](https://example.org) [e](#here)
```
[f](x.md)
```
<img src="y.png">"""
    assert repository.with_links(text, str.upper) == (
        """[a](X.MD) ![b](Y.PNG "title") `[c](z.md)` [d](https://example.org) [e](#here)
```
[f](x.md)
```
<img src="Y.PNG">"""
    )


def test_a_source_with_fences_of_its_own_stays_one_block() -> None:
    text = repository.text_of("tests/docs/test_site.py")  # which has some above
    assert text.count("\n" + text.splitlines()[-1]) == 2


def test_a_state_diagram_becomes_a_picture_of_all_its_transitions() -> None:
    page = (repository.ROOT / "docs" / "lifecycle.md").read_text()
    picture = re.search("<svg.*</svg>", diagram.with_pictures(page))
    assert picture
    drawn = ElementTree.fromstring(picture[0])
    told = {text.text for text in drawn.iter("text")}
    assert {status.name for status in Status} < told
    assert {"Launched", "Retried, Shrunk, Interrupted", "Suggested"} < told
    transitions = [line for line in drawn.iter("line") if line.get("class") == "arrow"]
    assert len(transitions) == page.count(" --> ") - page.count("--> [*]")


def test_what_the_built_site_lacks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(built, "PAGES", {"holdfast.data": ["holdfast.data"]})
    (tmp_path / "reference").mkdir()
    names = public_names.names_of("holdfast.data")
    places = "".join(f'<h2 id="holdfast.data.{name}">' for name in names if name != "range")
    (tmp_path / "reference" / "holdfast.data.html").write_text(places)
    (tmp_path / "index.html").write_text(
        '<h1 id="top"><a href="#top"><a href="#bottom"><a href="gone.html"><a href="style.css">'
        '<script src="https://example.org/x.js"></script><a href="https://example.org">'
    )
    (tmp_path / "style.css").write_text("@import '//example.org/font.css'")
    assert list(built.faults(tmp_path)) == [
        "index.html: loads https://example.org/x.js from another host",
        "index.html: #bottom is a broken link",
        "index.html: gone.html is a broken link",
        "style.css: loads //example.org/font.css from another host",
        "reference/holdfast.data.html: holdfast.data.range is missing",
    ]


@pytest.mark.parametrize("words", ["disk full", "report bug", "old experiment"])
def test_a_reader_who_searches_for_it_finds_a_heading(words: str) -> None:
    """The search of the site ranks headings first."""
    pages = (repository.ROOT / "docs").glob("*.md")
    headings = [
        re.findall(r"\w+", line.lower())
        for page in pages
        for line in page.read_text().splitlines()
        if line.startswith("#")
    ]
    assert any(
        all(any(w.startswith(word) for w in one) for word in words.split()) for one in headings
    )
