"""A resolved place in storage: its public name, its secrets, and its filesystem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from holdfast.dataclass import dataclass
from holdfast.syncer.errors import InvalidLocation, StorageError, redact

Kind = Literal["local", "s3", "uri", "given"]

ARROW_SCHEMES = frozenset({"gs", "gcs", "hdfs", "viewfs", "abfs", "abfss", "mock"})
_HADOOP = (
    "It needs Java and Hadoop's libhdfs on this machine: set JAVA_HOME, HADOOP_HOME (or "
    "ARROW_LIBHDFS_DIR) and CLASSPATH, which `hadoop classpath --glob` prints"
)
_ADVICE = {"hdfs": _HADOOP, "viewfs": _HADOOP}
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
        path = joined(self.path, below)
        if self.kind == "s3":
            from urllib.parse import quote  # its import takes 10 ms, and local runs do not need it

            path = quote(path, safe="/~@:!$&'()*+,;=")
        return f"{self.root}{path}{self.query}"

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
            from holdfast.syncer.stores.s3.options import arrow_options

            return arrow_fs.S3FileSystem(**arrow_options(base.options)), base.path
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
