"""The place where results are stored, with credentials kept apart.

A `Location` is printed and stored as `public`, without credentials. Pickles for holdfast's own
processes include the credentials; files on the disk get `without_credentials()`. Resolving what
the user names contacts no storage.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from holdfast.dataclass import dataclass
from holdfast.syncer.errors import (
    InvalidLocation,
    StorageError,
    redact,
)
from holdfast.syncer.stores.filesystems import (
    as_arrow,
    is_this_machines,
    protocols,
    s3_options_of,
    without_prefix,
    wrapped_fsspec,
)

if TYPE_CHECKING:
    from holdfast.syncer.stores.store import Store


Kind = Literal["local", "s3", "uri", "given"]

ARROW_SCHEMES = frozenset({"gs", "gcs", "hdfs", "viewfs", "abfs", "abfss", "mock"})
# In URIs of these, %20 is a space. fsspec, which opens the others, takes paths as they are.
_ENCODED = ARROW_SCHEMES | {"file", "local", "s3", "s3a"}
_HADOOP = (
    "It needs Java and Hadoop's libhdfs on this machine: set JAVA_HOME, HADOOP_HOME (or "
    "ARROW_LIBHDFS_DIR) and CLASSPATH, which `hadoop classpath --glob` prints"
)
_ADVICE = {"hdfs": _HADOOP, "viewfs": _HADOOP}
_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)://")
_SECRET_WORDS = ("key", "secret", "token", "password", "sig", "credential", "sas")
_PREFIXED = (
    "storage_path must not start with a protocol when a storage_filesystem is given",
    "Strip it: storage_path={!r}",
)
_PICKLED = ("kind", "root", "path", "query", "options", "uri", "filesystem")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoragePlace:
    """A resolved place, without the path below it.

    `root` and `query` are the public parts before and after `path`. `options` are those of S3,
    `uri` is the complete URI of other kinds, and `filesystem` the one that the user passed.
    """

    kind: Kind
    root: str
    path: str
    query: str = ""
    options: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    uri: str = field(default="", repr=False)
    filesystem: Any = field(default=None, repr=False, hash=False)
    made: dict[str, tuple[Any, str]] = field(default_factory=dict, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave out what was created lazily (clients, connections)."""
        return _rebuild, tuple(getattr(self, name) for name in _PICKLED)

    def public(self, below: str = "") -> str:
        """The folder `below` this place, without credentials."""
        if self.kind == "s3":
            return s3_uri(joined(self.path, below), self.options)
        if self.kind == "uri":
            # Of gs://bucket the path is empty, and the root has no slash.
            base = f"{self.root}{self.path}"
            return f"{joined(base, in_uri(base, below))}{self.query}"
        return f"{self.root}{joined(self.path, below)}{self.query}"

    def arrow(self) -> tuple[Any, str]:
        """The pyarrow filesystem, created at the first call, and the path in it.

        Raises InvalidLocation or another StorageError.
        """
        if "arrow" not in self.made:
            try:
                self.made["arrow"] = _make_arrow(self)
            except StorageError:
                raise
            except Exception as error:  # pyarrow's and fsspec's drivers raise many types
                cause = redact(f"{type(error).__name__}: {error}", self.options.values())
                # Hadoop's driver lists a hundred places where it looked for Java.
                scheme, (cause, *_) = self.root.partition("://")[0].lower(), cause.splitlines()
                advice = _ADVICE.get(scheme, "")
                raise InvalidLocation("open", self.public(), cause, advice) from None
        return self.made["arrow"]


def _rebuild(*values: Any) -> StoragePlace:
    return StoragePlace(**dict(zip(_PICKLED, values, strict=True)))


def s3_uri(path: str, options: Mapping[str, str]) -> str:
    """The URI of `bucket/prefix`, with its options but no credentials."""
    from holdfast.syncer.stores.s3.options import public_query

    return f"s3://{in_uri('s3://', path)}{public_query(options)}"


def in_uri(uri: str, path: str) -> str:
    """`path` as a part of this URI, percent-encoded if its protocol is."""
    if not _is_encoded(uri):
        return path
    from urllib.parse import quote  # its import takes 10 ms, and local runs do not need it

    return quote(path, safe="/~@:!$&'()*+,;=")


def from_uri(uri: str, part: str) -> str:
    """The path in a part of this URI: the inverse of `in_uri`."""
    if not _is_encoded(uri):
        return part
    from urllib.parse import unquote

    return unquote(part)


def _is_encoded(uri: str) -> bool:
    scheme = _SCHEME.match(uri)
    return scheme is not None and scheme[1].lower() in _ENCODED


def joined(path: str, below: str) -> str:
    if not below:
        return path
    return f"{path}{below}" if path.endswith("/") else f"{path}/{below}" if path else below


def _make_arrow(base: StoragePlace) -> tuple[Any, str]:
    import pyarrow.fs as arrow_fs

    match base.kind:
        case "local":
            return arrow_fs.LocalFileSystem(), base.path
        case "s3":
            from holdfast.syncer.stores.s3.options import arrow_options, as_configured

            options = as_configured(base.options, os.environ)
            return arrow_fs.S3FileSystem(**arrow_options(options)), base.path
        case "given":
            if base.filesystem is None:
                cause = "its storage_filesystem must be given"
                raise InvalidLocation("open", base.public(), cause)
            return base.filesystem, base.path
        case "uri":
            return _arrow_from_uri(base.uri)


def _arrow_from_uri(uri: str) -> tuple[Any, str]:
    import pyarrow.fs as arrow_fs

    scheme = uri.partition("://")[0].lower()
    if scheme in ARROW_SCHEMES:
        filesystem, path = arrow_fs.FileSystem.from_uri(uri)
        return filesystem, path
    import fsspec

    made, path = fsspec.core.url_to_fs(uri)
    return arrow_fs.PyFileSystem(arrow_fs.FSSpecHandler(made)), path


def resolved(
    storage_path: str | os.PathLike[str] | None,
    filesystem: object | None,
    environ: Mapping[str, str],
) -> StoragePlace:
    """Resolve a place. Without a `storage_path` it is RAY_STORAGE, else RAY_AIR_LOCAL_CACHE_DIR,
    else `~/ray_results`. Raises InvalidLocation."""
    if filesystem is not None:
        return _given(storage_path, filesystem)
    path = storage_path if storage_path is not None else default_storage(environ)
    text = os.fspath(path)
    if not isinstance(text, str):
        raise InvalidLocation("resolve", repr(text), "storage_path must be text, not bytes")
    if not text.strip():
        raise InvalidLocation("resolve", "storage_path", "it is empty")
    scheme = _SCHEME.match(text)
    return _of_uri(text, scheme[1].lower()) if scheme else _local(text)


def default_storage(environ: Mapping[str, str]) -> str:
    """The storage path of a run that names none."""
    for variable in ("RAY_STORAGE", "RAY_AIR_LOCAL_CACHE_DIR"):
        if environ.get(variable):
            return environ[variable]
    return "~/ray_results"


def _local(text: str) -> StoragePlace:
    expanded = os.path.expanduser(text)
    if expanded.startswith("~"):
        raise InvalidLocation("resolve", text, "there is no such user on this machine")
    if "\0" in expanded:
        raise InvalidLocation("resolve", repr(text), "a path cannot hold a NUL character")
    return StoragePlace(kind="local", root="", path=os.path.abspath(expanded))


def _given(storage_path: str | os.PathLike[str] | None, filesystem: object) -> StoragePlace:
    if storage_path is None or not os.fspath(storage_path):
        raise InvalidLocation(
            "resolve", "storage_filesystem", "it needs a storage_path in that filesystem"
        )
    text = os.fspath(storage_path)
    if scheme := _SCHEME.match(text):
        cause, advice = _PREFIXED
        raise InvalidLocation(
            "resolve", redact(text), cause, advice.format(redact(text)[scheme.end() :])
        )
    wrapped = as_arrow(filesystem)
    if wrapped is None:
        return _local(text)
    path = text.rstrip("/") or text
    return StoragePlace(kind="given", root="", path=path, filesystem=wrapped)


def _of_uri(text: str, scheme: str) -> StoragePlace:
    match scheme:
        case "file" | "local":
            return _of_file_uri(text)
        case "s3" | "s3a":
            return _of_s3_uri(text)
        case _:
            return _of_other_uri(text, scheme)


def _of_file_uri(text: str) -> StoragePlace:
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(text)
    if parts.netloc not in {"", "localhost"}:
        raise InvalidLocation(
            "resolve",
            redact(text),
            f"a file URI has no host, but this one has {redact(parts.netloc)!r}",
            f"Write file:///{parts.netloc.rpartition('@')[2]}{parts.path} with three slashes",
        )
    return _local(unquote(parts.path))


def _of_s3_uri(text: str) -> StoragePlace:
    from holdfast.syncer.stores.s3.options import parse_s3_uri

    path, options = parse_s3_uri(text)
    return StoragePlace(kind="s3", root="s3://", path=path, options=options)


def _of_other_uri(text: str, scheme: str) -> StoragePlace:
    if scheme not in ARROW_SCHEMES and not _fsspec_knows(scheme):
        raise InvalidLocation(
            "resolve",
            redact(text),
            f"neither pyarrow nor fsspec knows the protocol {scheme!r}",
            "Check its spelling, or give the filesystem as storage_filesystem",
        )
    body, _, query = text.partition("?")
    start = body.index("://") + 3
    authority, slash, path = body[start:].partition("/")
    public_query = "&".join(pair for pair in query.split("&") if pair and not _is_secret(pair))
    return StoragePlace(
        kind="uri",
        root=f"{body[:start]}{_without_password(authority)}{slash}",
        path=path.rstrip("/"),
        query=f"?{public_query}" if public_query else "",
        uri=text,
    )


def _fsspec_knows(scheme: str) -> bool:
    import fsspec

    return scheme in fsspec.available_protocols()


def _is_secret(pair: str) -> bool:
    name = pair.partition("=")[0].lower()
    return any(word in name for word in _SECRET_WORDS)


def _without_password(authority: str) -> str:
    # abfs://container@account has no secret before the @; abfs://:key@account has one.
    userinfo, at, host = authority.rpartition("@")
    user = userinfo.partition(":")[0]
    return f"{user}{at}{host}" if user else host


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
        options = s3_options_of(wrapped_fsspec(filesystem), path)
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
        from holdfast.syncer.stores.generic import ArrowStore

        filesystem, path = without_prefix(*self.arrow())
        if is_this_machines(filesystem):
            return _local_store(path)
        return ArrowStore(filesystem, path, where=self.public)

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
