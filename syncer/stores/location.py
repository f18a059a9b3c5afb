"""The place where results are stored, with credentials kept apart.

A `Location` is printed and stored as `public`, without credentials. Pickles for holdfast's own
processes include the credentials; files on the disk get `without_credentials()`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from holdfast.dataclass import dataclass
from holdfast.syncer.stores.filesystems import (
    is_this_machines,
    protocols,
    without_prefix,
    wrapped_fsspec,
)
from holdfast.syncer.stores.place import Kind, StoragePlace, joined, resolved, s3_uri
from holdfast.syncer.stores.plain_s3fs import plain_s3_options

if TYPE_CHECKING:
    from holdfast.syncer.stores.store import Store


@dataclass(frozen=True, slots=True, eq=False)
class Location:
    """A folder in storage: `base`, and the path below it. Locations of one place are equal."""

    base: StoragePlace = field(repr=False)
    below: str = field(default="", repr=False)

    @classmethod
    def resolve(
        cls,
        storage_path: str | os.PathLike[str] | None,
        filesystem: object | None,
        environ: Mapping[str, str],
    ) -> Self:
        """Resolve the user's arguments, without contacting the storage.

        Without a `storage_path` it is RAY_STORAGE, else RAY_AIR_LOCAL_CACHE_DIR, else
        `~/ray_results`. Raises InvalidLocation.
        """
        return cls(resolved(storage_path, filesystem, environ))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Location) and self._place == other._place

    def __hash__(self) -> int:
        return hash(self._place)

    @property
    def _place(self) -> tuple[StoragePlace, str]:
        return replace(self.base, path=""), joined(self.base.path, self.below)

    @property
    def kind(self) -> Kind:
        return self.base.kind

    @property
    def public(self) -> str:
        """The place without credentials; `resolve` accepts it."""
        return self.base.public(self.below)

    @property
    def uri(self) -> str | None:
        """The place as text that any machine understands, without credentials.

        An absolute path if it is a directory of this machine. Of a filesystem that the user
        passed: the URI of the same place, None if there is none.
        """
        if self.kind != "given":
            return self.public
        if self.base.filesystem is None:
            return None
        filesystem, path = without_prefix(*self.arrow())
        if is_this_machines(filesystem):
            return os.path.abspath(path)
        options = plain_s3_options(wrapped_fsspec(filesystem), path)
        return None if options is None else s3_uri(path.strip("/"), options)

    @property
    def local_path(self) -> str | None:
        """The absolute path, if this is a directory of this machine."""
        return joined(self.base.path, self.below) if self.kind == "local" else None

    @property
    def path(self) -> str:
        """The path as pyarrow expects it: `bucket/prefix/...` for S3."""
        if self.kind == "uri":
            return self.arrow()[1]
        return joined(self.base.path, self.below)

    def arrow(self) -> tuple[Any, str]:
        """The pyarrow filesystem, created once for this place and all below it, and the path.

        Raises InvalidLocation or another StorageError if the filesystem cannot be created.
        """
        filesystem, path = self.base.arrow()
        return filesystem, joined(path, self.below)

    def open_store(self) -> Store:
        """A new store for this place, which the caller closes. Nothing is contacted yet."""
        if self.kind == "local":
            return _local_store(self.path)
        if self.kind == "s3":
            return _s3_store(self.path, self.base.options, where=self.public)
        from holdfast.syncer.stores.fsspec_store import store_over

        filesystem, path = without_prefix(*self.arrow())
        if is_this_machines(filesystem):
            return _local_store(path)
        if (options := plain_s3_options(wrapped_fsspec(filesystem), path)) is not None:
            return _s3_store(path, options, where=self.public)
        return store_over(filesystem, path, where=self.public)

    def child(self, name: str) -> Location:
        """A folder below this one; `name` may have several parts. Raises ValueError."""
        from holdfast.syncer.stores.store import check_key

        return replace(self, below=joined(self.below, check_key(name)))

    def above(self, levels: int) -> Location | None:
        """The folder `levels` above this one; None if there is none."""
        head, *rest = self.path.rstrip("/").rsplit("/", levels)
        if len(rest) < levels:
            return None
        base = replace(self.base, path=head, made={})
        if self.kind == "uri":
            base = replace(base, kind="given", filesystem=self.arrow()[0])
        return replace(self, base=base, below="")

    def without_credentials(self) -> Location:
        """The same place for a file on the disk: without secrets and the user's filesystem."""
        if self.kind == "given":
            return replace(self, base=replace(self.base, filesystem=None, made={}))
        return replace(Location.resolve(self.base.public(), None, {}), below=self.below)

    @property
    def is_picklable(self) -> bool:
        """Whether this can be sent to another process; not every user's filesystem can."""
        # Each process has its own memory filesystem of fsspec.
        if self.kind != "given":
            return not self.base.uri.startswith("memory:")
        filesystem, _ = without_prefix(self.base.filesystem, "")
        if "memory" in protocols(wrapped_fsspec(filesystem)):
            return False
        import cloudpickle

        try:
            cloudpickle.dumps(self.base.filesystem)
        except Exception:  # a user's class may raise anything
            return False
        return True

    def __repr__(self) -> str:
        return f"Location({self.public!r})"

    def __str__(self) -> str:
        return self.public


def _s3_store(path: str, options: Mapping[str, str], *, where: str) -> Store:
    from holdfast.syncer.stores.s3.store import S3Store

    bucket, _, prefix = path.strip("/").partition("/")
    return S3Store(bucket, prefix, options=options, where=where)


def _local_store(path: str) -> Store:
    from holdfast.syncer.stores.local import LocalStore

    return LocalStore(Path(os.path.abspath(path)))
