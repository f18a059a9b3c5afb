"""Finds where an experiment is: its local tree, and its storage."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from keyword import iskeyword
from pathlib import Path
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.folder.settings import Settings
from holdfast.experiment.folder.shell import resume_command
from holdfast.experiment.records.journal import has_begun
from holdfast.experiment.records.recovery import NothingToRestore
from holdfast.names import printable
from holdfast.scheduler.events import ExperimentSpec
from holdfast.syncer.checkpoint.download import with_store
from holdfast.syncer.errors import InvalidLocation, StorageError, redact
from holdfast.syncer.files.durable import make_folder, write_atomic
from holdfast.syncer.stores.location import Location, from_uri, in_uri
from holdfast.syncer.stores.preflight import preflight, when_ready
from holdfast.syncer.stores.store import NOTE_BYTES, parse_table, read_note, read_small
from holdfast.trial.config import RunConfig
from holdfast.trial.errors import InvalidConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorNote:
    """The storage that a tree is uploaded to.

    `address` is the storage without protocol, endpoint and credentials. `uri` reaches it, without
    credentials; "" if only the user's filesystem object does.
    `tree` identifies the folder that is uploaded, so that a copy of it is recognized.
    """

    address: str
    uri: str = ""
    tree: str = ""

    def is_of(self, root: Path) -> bool:
        """True if it was written in this folder, and not copied or moved there."""
        return self.tree == _tree(root)

    def __str__(self) -> str:
        return printable(self.uri or self.address)


def read_mirror(layout: Layout) -> MirrorNote | None:
    """The note in a tree; None if it is uploaded nowhere. Raises OSError."""
    try:
        address = read_note(layout.mirror_of)
    except (FileNotFoundError, NotADirectoryError):
        return None
    found: dict[str, object] = {}
    with suppress(OSError, ValueError):
        found = parse_table(read_small(layout.mirror_at, NOTE_BYTES))
    uri, tree = found.get("uri"), found.get("tree")
    if not isinstance(uri, str) or not isinstance(tree, str):
        return MirrorNote(address=address)
    return MirrorNote(address=address, uri=uri if _reaches(uri, address) else "", tree=tree)


def is_mirror_of(layout: Layout, remote: Location) -> bool:
    """True if the tree here belongs to the experiment in this storage, or to none yet.

    An experiment with the same name may be in another storage, or only here.
    """
    try:
        return read_note(layout.mirror_of) == _address(remote)
    except FileNotFoundError:
        return not has_begun(layout.journal)


def mark(layout: Layout, remote: Location, root: Path | None = None) -> None:
    """Record in the tree here which storage it is uploaded to; `root` is its folder, if the tree
    is moved there next."""
    tree = _tree(layout.root if root is None else root)
    note = MirrorNote(address=_address(remote), uri=remote.uri or "", tree=tree)
    with suppress(OSError):
        if read_mirror(layout) == note:
            return
    write_atomic(layout.mirror_at, json.dumps({"uri": note.uri, "tree": tree}).encode())
    write_atomic(layout.mirror_of, note.address.encode())


def forget_storage(layout: Layout) -> None:
    """From now on the tree is an experiment of its own."""
    for note in (layout.mirror_of, layout.mirror_at):
        note.unlink(missing_ok=True)


def mirror_name(name: str, remote: Location) -> str:
    """The name of the tree here if another experiment has its name."""
    return f"{name}-{zlib.crc32(_address(remote).encode()):08x}"


def _reaches(uri: str, address: str) -> bool:
    """True if a URI, which anybody may have written, leads to the noted storage."""
    try:
        remote = Location.resolve(uri, None, {})
    except InvalidLocation:
        return False
    return _address(remote) == address


def _tree(root: Path) -> str:
    """A name of this folder that does not show its path."""
    return hashlib.sha256(os.path.realpath(root).encode(errors="surrogateescape")).hexdigest()[:16]


def _address(remote: Location) -> str:
    """The location without protocol, endpoint and credentials.

    A bucket may be reached in several ways, and each must find the same local tree.
    """
    place, is_uri, path = remote.public.partition("://")
    if not is_uri:
        return place.strip("/")
    from urllib.parse import unquote

    return unquote(path.partition("?")[0]).strip("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentPlace:
    """The place of the experiment `name`.

    `layout` is the tree on this machine. `remote` is its storage, None if the tree itself is in
    the storage. `location` is the experiment's folder as users know it. `mode`: the permissions of
    the tree's folder if it is created now.
    """

    name: str
    layout: Layout
    location: Location
    remote: Location | None
    mode: int = 0o700


def find_place(
    storage_path: str | os.PathLike[str] | None,
    filesystem: object | None,
    name: str,
    settings: Settings,
    environ: Mapping[str, str],
) -> ExperimentPlace:
    """The place of the experiment `name` in a storage. Reads at most the note of a local tree.

    A local storage path is used as it is, with nothing copied twice, unless
    RAY_AIR_LOCAL_CACHE_DIR names another directory to work in.

    Raises InvalidLocation, and UnicodeEncodeError for a name or path that is not UTF-8.
    """
    location = Location.resolve(storage_path, filesystem, environ).child(name)
    local = location.local_path
    work = settings.local_dir / name
    for path in (location.public, str(work)):
        path.encode()  # fails before anything is made: later, in a process that has begun
    mode = 0o777 if settings.shared else 0o700
    if local is not None and (not settings.explicit_local_dir or Path(local) == work):
        return ExperimentPlace(
            name=name, layout=Layout(Path(local)), location=location, remote=None, mode=mode
        )
    if not is_mirror_of(Layout(work), location):
        work = settings.local_dir / mirror_name(name, location)
    return ExperimentPlace(
        name=name, layout=Layout(work), location=location, remote=location, mode=mode
    )


COPY_ADVICE = "To continue it without that storage, copy the folder elsewhere and resume the copy"


def followed(
    folder: str | None, settings: Settings, environ: Mapping[str, str]
) -> tuple[ExperimentPlace | None, MirrorNote | None]:
    """If a folder is a tree that is uploaded to a storage: the place there, and the tree's note.

    A run in such a tree alone would fork the experiment: the storage would never see it. So a path
    to the tree means the experiment in storage. A copy of the tree elsewhere is an experiment of
    its own: only the note is returned. Neither is for any other folder, and for None.

    Raises InvalidConfig if only the caller can name the storage, OSError.
    """
    if folder is None:
        return None, None
    tree = Layout(root := Path(folder))
    note = read_mirror(tree)
    if note is None or not has_begun(tree.journal):
        return None, None
    if not note.uri:
        if note.is_of(root) or _is_same(root.parent, settings.local_dir):
            raise InvalidConfig(_not_named(root, note))
        return None, note
    parent, name = split(note.uri, None)
    stored = find_place(parent, None, name, settings, environ)
    if not _is_same(stored.layout.root, root):
        if not note.is_of(root):
            return None, note
        stored = replace(stored, layout=tree, remote=stored.location)
    return stored, note


def _is_same(one: Path, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _not_named(root: Path, note: MirrorNote) -> str:
    return (
        f"{root} is this machine's tree of the experiment in {note}: pass the URI of "
        f"the experiment there, or that path and its storage_filesystem. {COPY_ADVICE}"
    )


def check_local(place: ExperimentPlace) -> None:
    """Try to write to the experiment's local tree.

    Raises StorageError with the attempt and the answer.
    """
    try:
        make_folder(place.layout.root, place.mode)
        # A file without a name, so that nothing can stay behind.
        with tempfile.TemporaryFile(dir=place.layout.root):
            pass
    except OSError as error:
        raise StorageError(
            "write to",
            str(place.layout.root),
            error.strerror or str(error),
            "Choose another RunConfig(storage_path=...) or RAY_AIR_LOCAL_CACHE_DIR",
        ) from error


def check_remote(
    place: ExperimentPlace,
    *,
    timeout_s: float = 0.0,
    tell: Callable[[str], None] = lambda text: None,
) -> None:
    """Try to write to the storage of the results, before trial 1.

    The caller holds the lock, so test objects that an earlier run of this tree left when it died
    belong to no process, and are removed. Waits up to `timeout_s` for a busy storage; `tell` is
    called with a line about it.

    Raises StorageError with the attempt and the answer.
    """
    remote = place.remote
    if remote is None:
        return
    where, owner = remote.public, _tree_name(place)

    def check() -> None:
        with_store(remote, lambda store: preflight(store, where, owner=owner))

    when_ready(check, where, timeout_s=timeout_s, tell=tell)


def _tree_name(place: ExperimentPlace) -> str:
    """A name that no other tree has, on this machine or another."""
    tree = f"{os.uname().nodename} {place.layout.root}"
    return hashlib.sha256(tree.encode()).hexdigest()[:16]


def claim(place: ExperimentPlace, *, resumes: bool = False) -> None:
    """Record in the tree which storage it is uploaded to. A copy of such a tree that `resumes` is
    an experiment of its own from now on. The caller holds the lock."""
    if place.remote is not None:
        mark(place.layout, place.remote)
    if resumes and (folder := place.location.local_path) is not None:
        forget_storage(Layout(Path(folder)))


def resume_hint(location: Location, spec: ExperimentSpec, *options: str) -> str:
    """The command, and the line of Python, that resume the experiment."""
    call = restore_call(location.public, spec)
    if location.kind == "given":
        return call  # a shell cannot pass its storage_filesystem
    return f"{resume_command(location.public, *options)} (in Python: {call})"


def restore_call(path: str, spec: ExperimentSpec) -> str:
    """The line of Python that resumes the experiment at `path`, ready to paste."""
    if trainer := spec.options.get("trainer"):
        return f"{trainer}.restore({path!r}).fit()"
    name = spec.trainable
    # A trainer is an object without a name; it is in trainer.pkl.
    is_named = name.isidentifier() and not iskeyword(name) and not name.endswith("Trainer")
    return f"tune.Tuner.restore({path!r}{f', trainable={name}' * is_named}).fit()"


def address_of(
    path: str | os.PathLike[str] | RunConfig, filesystem: Any, settings: Settings
) -> tuple[str, Any]:
    """The path to an experiment and its filesystem; the argument may be a RunConfig with a name.

    Raises InvalidConfig for a RunConfig without a name.
    """
    if not isinstance(path, RunConfig):
        text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
        if not isinstance(text, str) or "\0" in text:
            raise InvalidConfig(f"the path to an experiment must be text, not {path!r:.100}")
        return text, filesystem
    if path.name is None:
        raise InvalidConfig("restore finds an experiment by its name: pass RunConfig(name=...)")
    base = os.fspath(path.storage_path or settings.storage or settings.local_dir)
    filesystem = path.storage_filesystem if filesystem is None else filesystem
    if filesystem is not None or "://" not in base:
        return f"{base.rstrip('/')}/{path.name}", filesystem
    base, separator, query = base.partition("?")
    return f"{base.rstrip('/')}/{in_uri(base, path.name)}{separator}{query}", filesystem


def _split(path: str | os.PathLike[str]) -> tuple[str, str]:
    """The storage path and the name in a path to an experiment; a query stays with the storage."""
    if not os.fspath(path).strip():
        return "", ""
    base, question_mark, query = os.fspath(path).partition("?")
    scheme, separator, body = base.partition("://")
    if not separator:
        return os.path.split(os.path.abspath(os.path.expanduser(os.fspath(path))))
    parent, _, name = body.rstrip("/").rpartition("/")
    if scheme.lower() in ("file", "local"):
        parent = parent or "/" * body.startswith("/")
    above = f"{scheme}{separator}{parent}{question_mark}{query}" if parent else ""
    return above, from_uri(base, name)


def split(path: str | os.PathLike[str], filesystem: object | None) -> tuple[str, str]:
    """The storage path and the name in a path to an experiment.

    Raises NothingToRestore for a path that names no folder in a storage.
    """
    if filesystem is None:
        parent, name = _split(path)
    else:
        parent, _, name = os.fspath(path).rstrip("/").rpartition("/")
    if not parent or name in ("", ".", "..") or "/" in name:
        raise NothingToRestore(
            f"{redact(os.fspath(path)) or repr('')} names no experiment: pass the path "
            f"<storage_path>/<name> of one, or its RunConfig"
        )
    return parent, name
