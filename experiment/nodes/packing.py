"""Packs what nodes need and may not see: the `working_dir`, and the modules of the user's script.

A package is a compressed tar file. Each node unpacks it once, and its workers import from there.
"""

from __future__ import annotations

import os
import stat
import sys
import sysconfig
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType

from holdfast.dataclass import dataclass
from holdfast.trial.errors import InvalidConfig

# Above it, a folder with data was probably given by mistake.
MOST_BYTES = 512 << 20
# Folders that other programs make again, or that hold another machine's programs.
_LEFT_OUT = frozenset(
    {
        ".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", ".mypy_cache",
        ".pytest_cache", ".ruff_cache", ".tox", ".ipynb_checkpoints",
    }
)  # fmt: skip
_FEW = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A packed folder: its archive, how many files and bytes are in it, and what is not, with the
    reason."""

    archive: Path
    files: int
    size_bytes: int
    refused: tuple[str, ...] = ()

    def told(self, what: str) -> str:
        """A sentence for the user about what is sent."""
        size = f"{self.size_bytes / 1e6:,.1f} MB"
        text = f"sending {what} to each node: {self.files:,} files, {size}"
        if not self.refused:
            return text
        more = len(self.refused) - _FEW
        left = f" and {more:,} more" if more > 0 else ""
        return f"{text}. Not sent: {'; '.join(self.refused[:_FEW])}{left}"


def pack_folder(
    folder: Path,
    archive: Path,
    *,
    without: Iterable[Path] = (),
    look: Callable[[], None] = lambda: None,
    most_bytes: int = MOST_BYTES,
) -> Package:
    """Pack the files of `folder`, except folders of version control and caches, and `without`.

    `look` is called before each file, and may raise to interrupt. Links inside the folder stay
    links; those that lead out of it, sockets and the like are refused. Raises InvalidConfig if the
    files have more than `most_bytes`, OSError.
    """
    return _pack({"": folder}, archive, {*without}, look, most_bytes)


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
    return _pack(own_modules(modules), archive, set(), look, most_bytes)


def own_modules(modules: Mapping[str, ModuleType]) -> dict[str, Path]:
    """The files and folders of top-level modules that no distribution has installed, by their
    names."""
    found: dict[str, Path] = {}
    installed = _installed()
    for name in sorted({name.partition(".")[0] for name in modules} - {"__main__", "holdfast"}):
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
) -> Package:
    files = size = 0
    refused: list[str] = []
    with tarfile.open(archive, "w:gz", compresslevel=1, format=tarfile.PAX_FORMAT) as packed:
        for name, path in _members(sources, without):
            look()
            if problem := _refusal(path, sources.get(name.split("/")[0], sources.get(""))):
                refused.append(f"{name} ({problem})")
                continue
            size += 0 if path.is_symlink() else path.stat().st_size
            if size > most_bytes:
                raise InvalidConfig(
                    f"{_common(sources)} has more than {most_bytes / 1e6:,.0f} MB (at {name}), "
                    f"which would be sent to every node. Name a smaller working_dir, or put data "
                    f"where all nodes read it"
                )
            files += 1
            packed.add(path, arcname=name, recursive=False, filter=_without_owner)
    return Package(archive=archive, files=files, size_bytes=size, refused=tuple(refused))


def _members(sources: Mapping[str, Path], without: set[Path]) -> Iterator[tuple[str, Path]]:
    """Each file below the sources, by its name in the archive."""
    for name, source in sources.items():
        if not source.is_dir():
            yield name, source
            continue
        for folder, inner, names in os.walk(source):
            at = Path(folder)
            inner[:] = sorted(one for one in inner if _is_packed(at / one, without))
            for one in sorted([*names, *(link for link in inner if (at / link).is_symlink())]):
                yield (Path(name) / (at / one).relative_to(source)).as_posix(), at / one


def _is_packed(folder: Path, without: set[Path]) -> bool:
    return folder.name not in _LEFT_OUT and folder not in without


def _refusal(path: Path, root: Path | None) -> str:
    """Why this cannot be sent; "" if it can."""
    try:
        mode = path.lstat().st_mode
    except OSError as error:
        return error.strerror or type(error).__name__
    if stat.S_ISLNK(mode):
        target = os.path.normpath(path.parent / os.readlink(path))
        is_inside = root is not None and Path(target).is_relative_to(root)
        return "" if is_inside else "a link that leads out of the folder"
    if not stat.S_ISREG(mode):
        return "not a regular file"
    return "" if os.access(path, os.R_OK) else "this user cannot read it"


def _without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """The user and group of this machine mean nothing on another one."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


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
