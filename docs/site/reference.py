"""The pages of the API reference, and the public names that have no docstring."""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Iterator
from typing import TypeAlias

import griffe

from docs.site.classes import Classes, bases
from docs.site.public_names import PAGES, SOURCE, names_of

_KNOWN = {"holdfast", *dir(builtins), *sys.stdlib_module_names}
# Only the schedulers themselves call the methods that are defined here.
_POLICIES = "holdfast.scheduler.policies."
_SPECIAL = {"__call__", "__getitem__"}
Described: TypeAlias = griffe.Class | griffe.Function | griffe.Attribute


class Reference:
    """Every public name of holdfast, read from the source: no framework needs to be installed."""

    def __init__(self) -> None:
        extensions = griffe.load_extensions(Classes())
        loader = griffe.GriffeLoader(search_paths=[SOURCE], extensions=extensions)
        self._package = loader.load("holdfast")
        loader.resolve_aliases(external=False)
        # These methods write a class into files: users do not call them.
        self._internal = set(self._package["described.Described"].members)
        self._homes: dict[str, str] = {}
        for module, name in _names():
            thing = self.object_of(f"{module}.{name}")
            # A class with two names in one module is described under its own name.
            if thing.path not in self._homes or name == thing.name != self._name(thing):
                self._homes[thing.path] = f"{module}.{name}"

    def object_of(self, public: str) -> Described:
        """The object behind a public name; for `A = B` it is B."""
        _, _, inner = public.partition(".")
        found = self._package[inner]
        while True:
            if found.is_alias:
                found = found.final_target
            value = str(found.value) if found.is_attribute else ""
            if not value.isidentifier() or value not in found.parent.members:
                return found
            found = found.parent[value]

    def _name(self, thing: Described) -> str:
        return self._homes[thing.path].rpartition(".")[2]

    def home_of(self, thing: griffe.Object) -> str | None:
        """The public name under which an object is described; None if it is not public."""
        return self._homes.get(thing.path)

    # -- missing docstrings ---------------------------------------------------------------------

    def undocumented(self) -> Iterator[str]:
        """Each public name, method and property without a docstring. A method that overrides a
        documented one needs none; nor does one of a framework's class, which may be the
        framework's own."""
        for path, public in self._homes.items():
            thing = self.object_of(public)
            if thing.docstring is None:
                yield f"{public} ({path})"
            if isinstance(thing, griffe.Class) and not _is_of_a_framework(thing):
                for owner, member in self._methods(thing):
                    if not any(
                        member.name in one.members and one.members[member.name].docstring
                        for one in [owner, *bases(owner)]
                    ):
                        yield f"{public}.{member.name} ({member.path})"

    def _methods(self, thing: griffe.Class) -> Iterator[tuple[griffe.Class, Described]]:
        """The public methods and properties that holdfast defines, each from its nearest class."""
        seen = set(self._internal)
        for owner in [thing, *bases(thing)]:
            for name, member in owner.members.items():
                if name.startswith("_") and name not in _SPECIAL:
                    continue
                if name in seen or member.is_alias:
                    continue
                if owner.path.startswith(_POLICIES):
                    continue
                seen.add(name)
                if member.is_function or "property" in member.labels:
                    yield owner, member

    # -- pages ----------------------------------------------------------------------------------

    def pages(self) -> Iterator[tuple[str, str]]:
        """Each page's path below reference/, and its text."""
        yield "index.md", self._index()
        for page, modules in PAGES.items():
            yield f"{page}.md", "\n".join(self._page(page, modules))

    def _index(self) -> str:
        lines = ["# Every public name", ""]
        for page, modules in PAGES.items():
            for module in modules:
                lines += [f"## {module}", "", "| name | |", "|---|---|"]
                for name in sorted(names_of(module), key=str.casefold):
                    public = f"{module}.{name}"
                    link = f"[`{name}`]({page}.md#{public})"
                    lines.append(f"| {link} | {self._summary(public)} |")
                lines.append("")
        return "\n".join(lines)

    def _summary(self, public: str) -> str:
        thing = self.object_of(public)
        return _first_sentence(thing.docstring.value if thing.docstring else "")

    def _page(self, page: str, modules: list[str]) -> Iterator[str]:
        yield f"# {page}\n"
        for module in modules:
            inner = module.partition(".")[2]
            docstring = (self._package[inner] if inner else self._package).docstring
            if len(modules) > 1:
                yield f"## {module}\n"
            yield f"{docstring.value if docstring else ''}\n"
            level = 2 + (len(modules) > 1)
            for name in sorted(names_of(module), key=str.casefold):
                yield from self._entry(f"{module}.{name}", level)

    def _entry(self, public: str, level: int) -> Iterator[str]:
        thing = self.object_of(public)
        home = self._homes[thing.path]
        if home != public:
            name = public.rpartition(".")[2]
            yield f"{'#' * level} {name} {{ #{public} }}\n"
            yield f"Another name of [`{home}`][{home}].\n"
            return
        yield f"::: {public}\n    options:\n      heading_level: {level}"
        if isinstance(thing, griffe.Class):
            own, inherited = self._shown(thing)
            yield f"      members: {own}\n      inherited_members: {own}\n"
            for base, names in inherited.items():
                links = ", ".join(f"[`{name}`][{base}.{name}]" for name in names)
                yield f"Inherited from [`{base}`][{base}]: {links}.\n"
        else:
            yield ""

    def _shown(self, thing: griffe.Class) -> tuple[list[str], dict[str, list[str]]]:
        """The members to describe with a class, and those that its public bases describe."""
        own: list[str] = []
        inherited: dict[str, list[str]] = {}
        for owner, member in self._methods(thing):
            if member.docstring is None:
                continue
            base = None if owner is thing else self.home_of(owner)
            (own if base is None else inherited.setdefault(base, [])).append(member.name)
        own += [
            name
            for name, member in thing.members.items()
            if member.is_attribute and member.docstring and name not in own and name[0] != "_"
        ]
        return own, inherited


def _names() -> Iterator[tuple[str, str]]:
    for modules in PAGES.values():
        for module in modules:
            yield from ((module, name) for name in names_of(module))


def _is_of_a_framework(thing: griffe.Class) -> bool:
    """Whether one of its bases, at any level, comes from a library."""
    return any(
        not isinstance(base, str) and base.canonical_path.partition(".")[0] not in _KNOWN
        for one in [thing, *bases(thing)]
        for base in one.bases
    )


def _first_sentence(text: str) -> str:
    paragraph = " ".join(text.partition("\n\n")[0].split())
    sentence = re.match(r".*?(?<!e\.g)(?<!\b[A-Z])[.;](?= |$)", paragraph)
    return (sentence[0][:-1] if sentence else paragraph).replace("|", "\\|")
