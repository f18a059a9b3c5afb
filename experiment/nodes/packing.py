"""Packs what nodes need and may not see: the `working_dir`, and the modules of the user's script.

A package is a compressed tar file. Each node unpacks it once, and its workers import from there.
"""

from __future__ import annotations

import os
import stat
import sys
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from holdfast.dataclass import dataclass
from holdfast.names import listed
from holdfast.trial.errors import InvalidConfig

if TYPE_CHECKING:
    import tarfile

_PREFIXES = ("AWS_", "AZURE_", "GOOGLE_", "GCS_", "FSSPEC_", "RAY_STORAGE")


def of_storage(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in environ.items() if name.startswith(_PREFIXES)}


def without_storage(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in environ.items() if not name.startswith(_PREFIXES)}


# Above it, a folder with data was probably given by mistake.
MOST_BYTES = 512 << 20
_BYTECODE = "__pycache__"
# Folders that other programs make again, or that hold another machine's programs. A virtual
# environment of any name is left out, too.
_LEFT_OUT = frozenset(
    {
        ".git", ".hg", ".svn", ".venv", "venv", "node_modules", _BYTECODE, ".mypy_cache",
        ".pytest_cache", ".ruff_cache", ".tox", ".ipynb_checkpoints",
    }
)  # fmt: skip
_OF_VENV = "pyvenv.cfg"
_FEW = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A packed folder: its archive, how many files and bytes are in it, the folders that were left
    out (without those of bytecode), and what cannot be sent, with the reason."""

    archive: Path
    files: int
    size_bytes: int
    left_out: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    def told(self, what: str) -> str:
        """A sentence for the user about what is sent."""
        files = "1 file" if self.files == 1 else f"{self.files:,} files"
        text = f"sending {what} to each node: {files}, {size_text(self.size_bytes)}"
        if self.left_out:
            text += f". Left out: {listed(self.left_out, _FEW)}"
        return f"{text}. Not sent: {listed(self.refused, _FEW, '; ')}" if self.refused else text


@dataclass(frozen=True, slots=True)
class _Member:
    """A file by its name in the archive. `root` is the folder that was named, or its file."""

    name: str
    path: Path
    root: Path


@dataclass
class _Found:
    """What a walk has found."""

    members: list[_Member] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    bytes_by_entry: Counter[str] = field(default_factory=Counter)


def pack_folder(
    folder: Path,
    archive: Path,
    *,
    without: Iterable[Path] = (),
    look: Callable[[], None] = lambda: None,
    most_bytes: int = MOST_BYTES,
) -> Package:
    """Pack the files of `folder`, except folders of version control, virtual environments and
    caches, and `without`.

    `look` is called before each file, and may raise to interrupt. Links inside the folder stay
    links; those that lead out of it, sockets and the like are refused. Raises InvalidConfig if the
    files have more than `most_bytes`, OSError.
    """
    remedy = "Name a smaller working_dir, or put data where all nodes read it, as in the storage"
    return _pack({"": folder}, archive, {*without}, look, most_bytes, remedy)


def pack_modules(
    modules: Mapping[str, ModuleType],
    archive: Path,
    *,
    look: Callable[[], None] = lambda: None,
    most_bytes: int = MOST_BYTES,
) -> Package:
    """Pack the modules of the user's own, each with all files of its package.

    Those of installed distributions are not packed: nodes have them. Raises as `pack_folder`.
    """
    remedy = (
        "Keep data out of the folders of your modules, or install them on the nodes with pip: "
        "installed packages are not sent"
    )
    return _pack(own_modules(modules), archive, set(), look, most_bytes, remedy)


def own_modules(modules: Mapping[str, ModuleType]) -> dict[str, Path]:
    """The files and folders of top-level modules that no distribution has installed, by their
    names.

    The script is one of them, for children that `multiprocessing` starts in a worker. If it is in
    a package, it comes with that. A command such as `holdfast` has no suffix.
    """
    found: dict[str, Path] = {}
    installed = _installed()
    names = {name.partition(".")[0] for name in modules} - {"__main__", "__mp_main__", "holdfast"}
    main = modules.get("__main__")
    is_in_package = "." in getattr(getattr(main, "__spec__", None), "name", "")
    if str(getattr(main, "__file__", "")).endswith(".py") and not is_in_package:
        names.add("__main__")
    for name in sorted(names):
        path = _place_of(modules.get(name))
        if path is not None and not any(path.is_relative_to(root) for root in installed):
            found[path.name] = path
    return found


def _pack(
    sources: Mapping[str, Path],
    archive: Path,
    without: set[Path],
    look: Callable[[], None],
    most_bytes: int,
    remedy: str,
) -> Package:
    found = _walk(sources, without, look)
    total = found.bytes_by_entry.total()
    if total > most_bytes:
        largest = found.bytes_by_entry.most_common(_FEW)
        named = ", ".join(f"{name} ({size_text(part)})" for name, part in largest)
        raise InvalidConfig(
            f"{_common(sources)} has {size_text(total)}, which would be sent to every node; at "
            f"most {size_text(most_bytes)} are. The largest in it: {named}. {remedy}"
        )
    import tarfile

    with tarfile.open(archive, "w:gz", compresslevel=1, format=tarfile.PAX_FORMAT) as packed:
        for member in found.members:
            look()
            packed.add(
                member.path, arcname=member.name, recursive=False, filter=partial(_plain, member)
            )
    return Package(
        archive=archive,
        files=len(found.members),
        size_bytes=total,
        left_out=tuple(found.left_out),
        refused=tuple(found.refused),
    )


def _walk(sources: Mapping[str, Path], without: set[Path], look: Callable[[], None]) -> _Found:
    """Find each file below the sources."""
    found = _Found()
    for name, source in sources.items():
        if not source.is_dir():
            _add(found, _Member(name, source, source))
            continue
        for folder, inner, names in os.walk(source, onerror=partial(_note_unreadable, found)):
            at = Path(folder)
            inside = Path(name) / at.relative_to(source)
            links = [one for one in inner if (at / one).is_symlink()]
            left = [one for one in inner if one not in links and _is_left_out(at / one, without)]
            named = sorted({*left} - {_BYTECODE})
            found.left_out += [(inside / one).as_posix() for one in named]
            inner[:] = sorted({*inner} - {*left, *links})
            for one in sorted([*names, *links]):
                look()
                _add(found, _Member((inside / one).as_posix(), at / one, source))
    return found


def _note_unreadable(found: _Found, error: OSError) -> None:
    found.refused.append(f"{error.filename} ({error.strerror})")


def _is_left_out(folder: Path, without: set[Path]) -> bool:
    return folder.name in _LEFT_OUT or folder in without or os.path.isfile(folder / _OF_VENV)


def _add(found: _Found, member: _Member) -> None:
    if problem := _refusal(member):
        found.refused.append(f"{member.name} ({problem})")
        return
    found.members.append(member)
    entry = member.name.partition("/")[0]
    found.bytes_by_entry[entry] += 0 if member.path.is_symlink() else member.path.stat().st_size


def _refusal(member: _Member) -> str:
    """Why this cannot be sent; "" if it can."""
    path = member.path
    try:
        mode = path.lstat().st_mode
    except OSError as error:
        return error.strerror or type(error).__name__
    if stat.S_ISLNK(mode):
        is_inside = Path(os.path.realpath(path)).is_relative_to(os.path.realpath(member.root))
        return "" if is_inside else "a link that leads out of the folder"
    if not stat.S_ISREG(mode):
        return "not a regular file"
    return "" if os.access(path, os.R_OK) else "this user cannot read it"


def _plain(member: _Member, entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """The user and group of this machine mean nothing on another one, and neither does the place
    of its folder: a link in the archive is relative."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    if entry.issym() and os.path.isabs(entry.linkname):
        target = os.path.realpath(member.path)
        entry.linkname = os.path.relpath(target, os.path.realpath(member.path.parent))
    return entry


def _common(sources: Mapping[str, Path]) -> str:
    return os.path.commonpath([str(path) for path in sources.values()])


def _place_of(module: ModuleType | None) -> Path | None:
    """The file of a module, or the folder of a package; None if it has none."""
    places = list(getattr(module, "__path__", ()))
    if places:
        return Path(places[0])
    file = getattr(module, "__file__", None)
    return Path(file) if isinstance(file, str) and os.path.isfile(file) else None


def _installed() -> list[Path]:
    """The folders of the standard library, of installed distributions, and of holdfast."""
    paths = sysconfig.get_paths()
    known = {
        *(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        *(entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")),
    }
    return [Path(entry).resolve() for entry in known if entry] + [Path(entry) for entry in known]


def size_text(count: int) -> str:
    """A number of bytes for the user."""
    return f"{count / 1e6:,.1f} MB" if count >= 100_000 else f"{count:,} bytes"
