"""Hooks of mkdocs: add the generated pages, and check their sources."""

from __future__ import annotations

from typing import Any

from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files

from docs.site import repository
from docs.site.diagram import with_pictures
from docs.site.reference import Reference

log = get_plugin_logger("holdfast")
_origins: dict[str, str] = {}


def on_files(files: Files, *, config: Any) -> Files:
    """Adds a page for each linked file outside docs/, and the pages of the API reference."""
    _origins.clear()
    _origins.update({file.src_uri: f"docs/{file.src_uri}" for file in files.documentation_pages()})
    for path, text in repository.reached().items():
        uri = repository.page_of(path)
        _origins[uri] = repository.origin_of(path)
        files.append(File.generated(config, uri, content=text))
    reference = Reference()
    for lacking in reference.undocumented():
        log.warning("no docstring: %s", lacking)
    for name, text in reference.pages():
        files.append(File.generated(config, f"reference/{name}", content=text))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """Turns links between files of the repository into links between pages."""
    origin = _origins.get(page.file.src_uri)
    if origin is None:
        return markdown

    def changed(target: str) -> str:
        try:
            return repository.link_to(origin, target)
        except repository.BrokenLink as error:
            log.warning("%s", error)
            return target

    return with_pictures(repository.with_links(markdown, changed))
