"""Checks the built site: it needs no network, has no broken link, and describes each public name.

`python -m docs.site.built` prints the errors, and exits with 1 if there are any.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from docs.site.public_names import PAGES, names_of

SITE = Path(__file__).parents[2] / "site"
_STYLE_SOURCE = re.compile(r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^"')\s]+)""", re.I)


class Page(HTMLParser):
    """The anchors and the links of a page, and the files that it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.places: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a":
            self.links += [given["href"]] if "href" in given else []
        else:
            self.loaded += [given[name] for name in ("src", "href", "data") if name in given]
            self.loaded += [part.split()[0] for part in given.get("srcset", "").split(",") if part]
        if "mermaid" in given.get("class", "").split():
            self.loaded.append("//mermaid")  # the theme fetches a library for it


def faults(site: Path = SITE) -> Iterator[str]:
    """One line for each error."""
    pages = {file: Page(file.read_text()) for file in sorted(site.rglob("*.html"))}
    pages = {file: page for file, page in pages.items() if file.name != "404.html"}
    for file, page in pages.items():
        where = file.relative_to(site)
        for loaded in page.loaded:
            if _is_foreign(loaded):
                yield f"{where}: loads {loaded} from another host"
        for link in [*page.links, *page.loaded]:
            if not _is_foreign(link) and not _leads(file, link, pages):
                yield f"{where}: {link} is a broken link"
    for file in sorted(site.rglob("*.css")):
        for source in _STYLE_SOURCE.findall(file.read_text()):
            yield f"{file.relative_to(site)}: loads {source} from another host"
    for name, modules in PAGES.items():
        places = pages[site / "reference" / f"{name}.html"].places
        for public in (f"{module}.{name}" for module in modules for name in names_of(module)):
            if public not in places:
                yield f"reference/{name}.html: {public} is missing"


def _is_foreign(link: str) -> bool:
    parts = urlsplit(link)
    return bool(parts.netloc) or parts.scheme in {"http", "https", "mailto", "data"}


def _leads(file: Path, link: str, pages: dict[Path, Page]) -> bool:
    parts = urlsplit(link)
    target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
    if target.is_dir():
        target /= "index.html"
    if not target.exists():
        return False
    return not parts.fragment or target not in pages or parts.fragment in pages[target].places


if __name__ == "__main__":
    found = list(faults())
    print("\n".join(found) or f"{SITE.name}/: no broken link, no need for a network")
    sys.exit(bool(found))
