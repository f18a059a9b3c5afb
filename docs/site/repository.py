"""Links between files of the repository, and the pages of the site that stand for those files.

Links in docs/, README.md and CHANGELOG.md lead to files, so that they work where people read the
repository. The site has a page for each file that is linked: README.md is its first page,
docs/x.md is x.md, another file next to README.md is in project/, a Markdown file further below
keeps its path, a source is shown as a block of code, and a folder as its README.md or a list of
its files.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
_FOREIGN = re.compile(r"[a-z][a-z0-9+.-]*:|//|#|$", re.I)
# [text](target), ![text](target "title"), <img src="target">; not within `code`.
_LINKS = re.compile(
    r"(?P<code>(?P<ticks>`+)(?:(?!`).|(?<=`)`)*?(?P=ticks)(?!`))"
    r"|(?P<before>\]\(|\b(?:src|srcset|href)=\")(?P<target>[^)\s\"]*)"
)
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_LANGUAGES = {".py": "python", ".sh": "bash", ".toml": "toml", ".json": "json", ".yml": "yaml"}
# The list of this folder links every file. Elsewhere it only names them.
_OPEN = "examples"


class BrokenLink(ValueError):
    """A link to a file that the repository does not have."""


def with_links(markdown: str, changed: Callable[[str], str]) -> str:
    """The text with each relative link's target replaced by `changed(target)`; code stays."""

    def link(match: re.Match[str]) -> str:
        target = match["target"]
        if match["code"] or _FOREIGN.match(target):
            return match[0]
        return match["before"] + changed(target)

    lines, fence = [], ""
    for line in markdown.split("\n"):
        mark = _FENCE.match(line)
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1].startswith(fence) and not line.strip(" `~"):
            fence = ""
        elif not fence:
            line = _LINKS.sub(link, line)
        lines.append(line)
    return "\n".join(lines)


def linked(path: str, target: str) -> str:
    """The file or folder, from the root, to which `target` leads from the file `path`. For the
    README.md of a folder, the folder.

    Raises BrokenLink.
    """
    found = os.path.normpath(os.path.join(os.path.dirname(path), target.partition("#")[0]))
    if found.startswith("..") or not (ROOT / found).exists():
        raise BrokenLink(f"{path}: {target} is not a file of the repository")
    return found.removesuffix("/README.md")


def page_of(path: str) -> str:
    """The page, or other file of the site, that stands for a file or folder."""
    if path in {"README.md", ".", "docs"}:
        return "index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    # mkdocs ignores hidden files, and on macOS SECURITY.md would be docs/security.md.
    is_folder = (ROOT / path).is_dir()
    shown = re.sub(r"(^|/)\.", r"\1", path if "/" in path or is_folder else f"project/{path}")
    if is_folder:
        return f"{shown}/README.md"
    return shown if path.endswith(".md") or is_picture(path) else f"{shown}.md"


def is_picture(path: str) -> bool:
    return PurePosixPath(path).suffix in {".gif", ".jpg", ".png", ".svg", ".webp"}


def link_to(path: str, target: str) -> str:
    """The link between the pages of `path` and of its link `target`. Raises BrokenLink."""
    where = os.path.dirname(page_of(path)) or "."
    _, mark, anchor = target.partition("#")
    return os.path.relpath(page_of(linked(path, target)), where) + mark + anchor


def text_of(path: str) -> str:
    """A file or folder outside docs/ as Markdown, with links relative to the repository."""
    file = ROOT / path
    if file.is_dir():
        return _folder(path)
    text = file.read_text(errors="replace")
    if path.endswith(".md"):
        return text
    fence = "`" * max([3, *(len(ticks) + 1 for ticks in re.findall(r"`{3,}", text))])
    language = _LANGUAGES.get(file.suffix) or ("bash" if text.startswith("#!") else "text")
    return f"# {path}\n\n{fence}{language}\n{text.rstrip()}\n{fence}\n"


def origin_of(path: str) -> str:
    """The file whose text `text_of(path)` is, or another one in that folder."""
    return f"{path}/README.md" if (ROOT / path).is_dir() else path


def _folder(path: str) -> str:
    """Its README.md, or else a list of its files; in examples/ both, with links."""
    listed = "\n".join(
        _listed(path, one.name + "/" * one.is_dir())
        for one in sorted((ROOT / path).iterdir())
        if not one.name.startswith((".", "__")) and one.name != "README.md"
    )
    readme = ROOT / path / "README.md"
    if not readme.exists():
        return f"# {path}/\n\n{listed}\n"
    return readme.read_text() + (f"\n## Files\n\n{listed}\n" if _is_open(path) else "")


def _listed(folder: str, name: str) -> str:
    if not _is_open(folder):
        return f"* {name}"
    file = ROOT / folder / name
    about = (ast.get_docstring(ast.parse(file.read_text())) or "") if file.suffix == ".py" else ""
    first = " ".join(about.partition("\n\n")[0].split())
    return f"* [{name}]({name})" + f": {first}" * bool(first)


def _is_open(folder: str) -> bool:
    return folder.split("/")[0] == _OPEN


def reached() -> dict[str, str]:
    """Every file and folder outside docs/ that has a page, and its text: those that docs/,
    README.md and CHANGELOG.md lead to, over any number of links."""
    texts = {path: text_of(path) for path in ["README.md", "CHANGELOG.md", "examples"]}
    waiting = [(origin_of(path), text) for path, text in texts.items()]
    waiting += [(f"docs/{file.name}", file.read_text()) for file in (ROOT / "docs").glob("*.md")]
    while waiting:
        for path in _led_to(*waiting.pop()):
            is_there = path in texts or page_of(path) == "index.md" or path.startswith("docs/")
            if not is_there and not is_picture(path):
                texts[path] = text_of(path)
                waiting.append((origin_of(path), texts[path]))
    return texts


def _led_to(path: str, text: str) -> list[str]:
    """The targets of the links in a text. Broken ones are reported when their page is made."""
    found = []

    def collected(target: str) -> str:
        with suppress(BrokenLink):
            found.append(linked(path, target))
        return target

    with_links(text, collected)
    return found
