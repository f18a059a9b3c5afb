"""The notes in a tree on this machine about the storage that it is uploaded to."""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from contextlib import suppress
from pathlib import Path

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.layout import Layout
from holdfast.experiment.records.journal_start import has_begun
from holdfast.names import printable
from holdfast.syncer.errors import InvalidLocation
from holdfast.syncer.files.durable import write_atomic
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.store import NOTE_BYTES, parse_table, read_note, read_small


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorNote:
    """Which storage a tree is uploaded to.

    `address` is the storage without protocol, endpoint and credentials. `uri` reaches it, without
    credentials; "" if only the user's filesystem object does.
    `tree` identifies the folder that is uploaded, so that a copy of it is recognized.
    """

    address: str
    uri: str = ""
    tree: str = ""

    def is_of(self, root: Path) -> bool:
        """Whether it was written in this folder, and not copied or moved there."""
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
    """Whether the tree here belongs to the experiment in this storage, or to none yet.

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
    """Whether a URI, which anybody may have written, leads to the noted storage."""
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
