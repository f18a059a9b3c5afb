"""The documentation's words: a short glossary, and none of the banned phrases."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.test_pages import PAGES, ROOT, prose

MOST_TERMS = 25
LOST = re.compile(
    r"\b(for want of|beside|anew|(is|are) told|go(es)? on with|comes? to nothing"
    r"|tak(es|en) up again|in its own time)\b",
    re.I,
)
OTHERS = [ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md", "tests/README.md")]


def test_the_glossary_is_short_and_sorted() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text()
    terms = re.findall(r"^\| \*\*(.+?)\*\* \|", glossary, re.M)
    assert terms == sorted(terms)
    assert 0 < len(terms) <= MOST_TERMS


@pytest.mark.parametrize("page", PAGES + OTHERS, ids=lambda page: page.name)
def test_a_page_says_it_plainly(page: Path) -> None:
    text = re.sub(r"`[^`\n]*`|\]\([^)\s]*\)", "", prose(page))
    assert [found.group() for found in LOST.finditer(text)] == []
