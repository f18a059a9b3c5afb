"""Where results are kept: what the user named, understood once, with its secrets set apart.

A `Location` prints and persists as `public`, which holds no credentials. It travels to our own
processes by pickle, credentials included; `without_credentials()` is for what stays on disk.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from holdfast.syncer.errors import InvalidLocation, StorageError, redact

if TYPE_CHECKING:
    from holdfast.syncer.store import Store

Kind = Literal["local", "s3", "uri", "given"]

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)://")
_SECRET_WORDS = ("key", "secret", "token", "password", "sig", "credential", "sas")
_ARROW_SCHEMES = frozenset({"gs", "gcs", "hdfs", "viewfs", "abfs", "abfss", "mock"})
_PREFIXED = (
    "storage_path must not start with a protocol when a storage_filesystem is given",
    "Strip it: storage_path={!r}",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """What was resolved: everything about a place but the path below it.

    `root` and `query` are the public parts around `path`; `options` are those of S3; `uri` is
    the whole URI of the other kinds, and `filesystem` what the user gave.
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
        """What was made lazily (clients, connections) stays in its process."""
        fields = (self.kind, self.root, self.path, self.query)
        return _rebuild, (*fields, dict(self.options), self.uri, self.filesystem)

    def arrow(self) -> tuple[Any, str]:
        """The pyarrow filesystem and the path in it, made on the first call."""
        if "arrow" not in self.made:
            self.made["arrow"] = _make_arrow(self)
        return self.made["arrow"]


def _rebuild(
    kind: Kind,
    root: str,
    path: str,
    query: str,
    options: Mapping[str, str],
    uri: str,
    filesystem: Any,
) -> Base:
    return Base(
        kind=kind,
        root=root,
        path=path,
        query=query,
        options=options,
        uri=uri,
        filesystem=filesystem,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Location:
    """A folder in some storage: `base`, and the path below it. Equal are those of one place."""

    base: Base = field(repr=False)
    below: str = field(default="", repr=False)

    @classmethod
    def resolve(
        cls,
        storage_path: str | os.PathLike[str] | None,
        filesystem: object | None,
        environ: Mapping[str, str],
    ) -> Self:
        """Understand what the user gave; nothing is contacted yet.

        Without a `storage_path` it is RAY_STORAGE, else RAY_AIR_LOCAL_CACHE_DIR, else
        `~/ray_results`. Raises InvalidLocation.
        """
        if filesystem is not None:
            return cls(_given(storage_path, filesystem))
        path = storage_path if storage_path is not None else _default(environ)
        text = os.fspath(path)
        if not isinstance(text, str):
            raise InvalidLocation("resolve", repr(text), "storage_path must be text, not bytes")
        if not text.strip():
            raise InvalidLocation("resolve", "storage_path", "it is empty")
        scheme = _SCHEME.match(text)
        return cls(_of_uri(text, scheme[1].lower()) if scheme else _local(text))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Location) and self._place == other._place

    def __hash__(self) -> int:
        return hash(self._place)

    @property
    def _place(self) -> tuple[Base, str]:
        return replace(self.base, path=""), _joined(self.base.path, self.below)

    @property
    def kind(self) -> Kind:
        return self.base.kind

    @property
    def public(self) -> str:
        """The place without credentials; `resolve` understands it again."""
        path = _joined(self.base.path, self.below)
        if self.kind == "s3":
            from urllib.parse import quote  # 10 ms of import that a local run does without

            path = quote(path, safe="/~@:!$&'()*+,;=")
        return f"{self.base.root}{path}{self.base.query}"

    @property
    def local_path(self) -> str | None:
        """The absolute path, if this is a directory of this machine."""
        return _joined(self.base.path, self.below) if self.kind == "local" else None

    @property
    def path(self) -> str:
        """The path as pyarrow wants it: `bucket/prefix/...` for S3."""
        if self.kind == "uri":
            return self.arrow()[1]
        return _joined(self.base.path, self.below)

    def arrow(self) -> tuple[Any, str]:
        """The pyarrow filesystem, made once for this place and all below it, and the path.

        Raises InvalidLocation or another StorageError if the filesystem cannot be made.
        """
        filesystem, path = self.base.arrow()
        return filesystem, _joined(path, self.below)

    def open_store(self) -> Store:
        """A new store of this place; close it when done. Nothing is contacted yet."""
        if self.kind == "local":
            from holdfast.syncer.store_local import LocalStore

            return LocalStore(Path(self.path))
        if self.kind == "s3":
            from holdfast.syncer.store_s3 import S3Store

            bucket, _, prefix = self.path.partition("/")
            return S3Store(bucket, prefix, options=self.base.options, where=self.public)
        from holdfast.syncer.store_arrow import ArrowStore

        filesystem, path = self.arrow()
        return ArrowStore(filesystem, path, where=self.public)

    def child(self, name: str) -> Location:
        """A folder below this one; `name` may have several parts. Raises ValueError."""
        from holdfast.syncer.store import check_key

        return replace(self, below=_joined(self.below, check_key(name)))

    def without_credentials(self) -> Location:
        """The same place as it may be written to disk: secrets and given filesystem left out."""
        if self.kind == "given":
            return replace(self, base=replace(self.base, filesystem=None, made={}))
        public = replace(self, below="").public
        return replace(Location.resolve(public, None, {}), below=self.below)

    @property
    def is_picklable(self) -> bool:
        """Whether this can be sent to another process: a given filesystem may forbid it."""
        if "memory" in _protocols(self):
            # fsspec's own: each process has another.
            return False
        if self.kind != "given":
            return True
        import cloudpickle

        try:
            cloudpickle.dumps(self.base.filesystem)
        except Exception:  # whatever a user's class raises; the caller is told by the answer
            return False
        return True

    def __repr__(self) -> str:
        return f"Location({self.public!r})"

    def __str__(self) -> str:
        return self.public


def _joined(path: str, below: str) -> str:
    if not below:
        return path
    return f"{path}{below}" if path.endswith("/") else f"{path}/{below}" if path else below


def _default(environ: Mapping[str, str]) -> str:
    for variable in ("RAY_STORAGE", "RAY_AIR_LOCAL_CACHE_DIR"):
        if environ.get(variable):
            return environ[variable]
    return "~/ray_results"


def _local(text: str) -> Base:
    expanded = os.path.expanduser(text)
    if expanded.startswith("~"):
        raise InvalidLocation("resolve", text, "there is no such user on this machine")
    if "\0" in expanded:
        raise InvalidLocation("resolve", repr(text), "a path cannot hold a NUL character")
    return Base(kind="local", root="", path=os.path.abspath(expanded))


def _given(storage_path: str | os.PathLike[str] | None, filesystem: object) -> Base:
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
    wrapped = _as_arrow(filesystem)
    if wrapped is None:
        return _local(text)
    path = text.rstrip("/") or text
    return Base(kind="given", root="", path=path, filesystem=wrapped)


def _as_arrow(filesystem: object) -> Any:
    """A pyarrow filesystem for what the user gave; None if it is this machine's own."""
    import pyarrow.fs as arrow_fs

    if isinstance(filesystem, arrow_fs.LocalFileSystem):
        return None
    if isinstance(filesystem, arrow_fs.FileSystem):
        return filesystem
    import fsspec
    from fsspec.implementations.local import LocalFileSystem

    if type(filesystem) is LocalFileSystem:
        return None
    if isinstance(filesystem, fsspec.AbstractFileSystem):
        return arrow_fs.PyFileSystem(arrow_fs.FSSpecHandler(filesystem))
    raise InvalidLocation(
        "resolve",
        "storage_filesystem",
        f"a {type(filesystem).__name__} is neither a pyarrow.fs.FileSystem "
        "nor an fsspec filesystem",
    )


def _of_uri(text: str, scheme: str) -> Base:
    match scheme:
        case "file" | "local":
            return _of_file_uri(text)
        case "s3" | "s3a":
            return _of_s3_uri(text)
        case _:
            return _of_other_uri(text, scheme)


def _of_file_uri(text: str) -> Base:
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(text)
    if parts.netloc not in {"", "localhost"}:
        raise InvalidLocation(
            "resolve",
            redact(text),
            f"a file URI names no host, and this one names {redact(parts.netloc)!r}",
            f"Write file:///{parts.netloc.rpartition('@')[2]}{parts.path} with three slashes",
        )
    return _local(unquote(parts.path))


def _of_s3_uri(text: str) -> Base:
    from holdfast.syncer.s3_options import parse_s3_uri, public_query

    path, options = parse_s3_uri(text)
    return Base(kind="s3", root="s3://", path=path, query=public_query(options), options=options)


def _of_other_uri(text: str, scheme: str) -> Base:
    if scheme not in _ARROW_SCHEMES and not _fsspec_knows(scheme):
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
    return Base(
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
    # abfs://container@account names no secret before the @, abfs://:key@account does.
    userinfo, at, host = authority.rpartition("@")
    user = userinfo.partition(":")[0]
    return f"{user}{at}{host}" if user else host


def _make_arrow(base: Base) -> tuple[Any, str]:
    import pyarrow.fs as arrow_fs

    shown = Location(base).public
    try:
        match base.kind:
            case "local":
                return arrow_fs.LocalFileSystem(), base.path
            case "s3":
                from holdfast.syncer.s3_options import arrow_options

                return arrow_fs.S3FileSystem(**arrow_options(base.options)), base.path
            case "given":
                if base.filesystem is None:
                    raise InvalidLocation("open", shown, "its storage_filesystem must be given")
                return base.filesystem, base.path
            case "uri":
                return _arrow_from_uri(base.uri)
    except StorageError:
        raise
    except Exception as error:  # pyarrow and fsspec raise what their drivers do; the user is told
        cause = redact(f"{type(error).__name__}: {error}", base.options.values())
        raise InvalidLocation("open", shown, cause) from None


def _arrow_from_uri(uri: str) -> tuple[Any, str]:
    import pyarrow.fs as arrow_fs

    scheme = uri.partition("://")[0].lower()
    if scheme in _ARROW_SCHEMES:
        filesystem, path = arrow_fs.FileSystem.from_uri(uri)
        return filesystem, path
    import fsspec

    made, path = fsspec.core.url_to_fs(uri)
    return arrow_fs.PyFileSystem(arrow_fs.FSSpecHandler(made)), path


def _protocols(location: Location) -> tuple[str, ...]:
    """What fsspec calls the filesystem; empty where it is none of its."""
    if location.kind == "uri":
        return (location.base.uri.partition("://")[0],)
    found = location.base.filesystem
    found = getattr(getattr(found, "handler", None), "fs", found)
    names = getattr(found, "protocol", ())
    return (names,) if isinstance(names, str) else tuple(names)
