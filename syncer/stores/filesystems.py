"""Recognizes the filesystems that users pass: pyarrow's or fsspec's, wrapped or not."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

from holdfast.syncer.errors import (
    AlreadyStored,
    InvalidLocation,
    NotStored,
    StorageBusy,
    StorageError,
    StorageRefused,
    StorageUnavailable,
    from_os_error,
    redact,
)

RemoveEmpty = Callable[[str], None]

# pyarrow's filesystems with atomic renames.
_ARROW_DISKS = frozenset({"local", "hdfs", "viewfs"})
_FSSPEC_DISKS = frozenset({"file", "local", "sftp", "ssh", "smb"})
# fsspec's filesystems whose `rmdir` refuses a folder that is not empty. ArrowFSWrapper, which may
# also have the protocol "local", removes the content, and s3fs the bucket.
_CAREFUL = frozenset({"local.LocalFileSystem", "sftp.SFTPFileSystem", "smb.SMBFileSystem"})
# The arguments of s3fs that a URI can express, or that do not affect the place.
_S3FS = frozenset(
    {"key", "secret", "token", "anon", "endpoint_url", "client_kwargs"}
    | {"use_listings_cache", "listings_expiry_time", "default_fill_cache"}
)
_CLIENT = frozenset({"endpoint_url", "region_name"})
# Errors are recognized by their text, because each driver has its own types.
_NO_ACCESS = re.compile(
    r"ACCESS_DENIED|AccessDenied|INVALID_ACCESS_KEY|InvalidAccessKey|SIGNATURE_DOES_NOT_MATCH"
    r"|SignatureDoesNotMatch|NoCredentials|Forbidden|\b(401|403)\b"
)
_EXISTS = re.compile(r"PreconditionFailed|ConditionNotMet|BlobAlreadyExists|\b412\b")
_BUSY = re.compile(r"SLOW_DOWN|SlowDown|ServiceUnavailable|Throttl|\b(429|502|503|504)\b")
_NO_BUCKET = re.compile(r"NO_SUCH_BUCKET|NoSuchBucket|[Bb]ucket .*(does not|doesn't) exist")
_CHECK_CREDENTIALS = "Check the credentials and that they may read, write, list and delete there"


def as_arrow(filesystem: object) -> Any:
    """The user's filesystem as pyarrow's; None if it is this machine's own.

    Raises InvalidLocation if it is not a filesystem.
    """
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


def is_this_machines(filesystem: Any) -> bool:
    """True if a pyarrow filesystem is exactly that of this machine's disks."""
    wrapped = wrapped_fsspec(filesystem)
    return as_arrow(filesystem if wrapped is None else wrapped) is None


def without_prefix(filesystem: Any, path: str) -> tuple[Any, str]:
    """Unwrap filesystems that only add a prefix to each path. Returns the inner one and the path
    in it."""
    import pyarrow.fs as arrow_fs

    while type(filesystem) is arrow_fs.SubTreeFileSystem:
        filesystem, path = filesystem.base_fs, f"{filesystem.base_path}{path}"
    wrapped = wrapped_fsspec(filesystem)
    if wrapped is None:
        return filesystem, path
    from fsspec.implementations.dirfs import DirFileSystem

    if type(wrapped) is not DirFileSystem:
        return filesystem, path
    below = arrow_fs.PyFileSystem(arrow_fs.FSSpecHandler(wrapped.fs))
    return without_prefix(below, f"{wrapped.path}/{path}" if wrapped.path else path)


def wrapped_fsspec(filesystem: Any) -> Any:
    """The fsspec filesystem inside a pyarrow filesystem; None if there is none."""
    handler = getattr(filesystem, "handler", None)
    return getattr(handler, "fs", None)


def protocols(filesystem: Any) -> frozenset[str]:
    """The protocols of one of fsspec's own filesystems; empty for any other."""
    names = getattr(filesystem, "protocol", ())
    return frozenset([names] if isinstance(names, str) else names)


def s3_options_of(filesystem: Any, path: str) -> dict[str, str] | None:
    """The options of an S3 URI that describes the same place as an s3fs filesystem, without its
    credentials; None if no URI does, or the filesystem is another one."""
    kind = type(filesystem)
    if f"{kind.__module__}.{kind.__qualname__}" != "s3fs.core.S3FileSystem":
        return None
    given = {
        name: value for name, value in filesystem.storage_options.items() if value is not None
    }
    client = given.get("client_kwargs", {})
    is_access_point = path.startswith("arn:")
    if (
        filesystem.storage_args
        or is_access_point
        or given.keys() - _S3FS
        or client.keys() - _CLIENT
    ):
        return None
    options = {
        "endpoint_override": given.get("endpoint_url") or client.get("endpoint_url"),
        "region": client.get("region_name"),
        "anonymous": "true" if given.get("anon") else None,
    }
    return {name: value for name, value in options.items() if value}


def renames_cheaply(filesystem: Any) -> bool:
    """True if a rename within this pyarrow filesystem is one cheap step."""
    wrapped = wrapped_fsspec(filesystem)
    if wrapped is None:
        return filesystem.type_name in _ARROW_DISKS
    return bool(protocols(wrapped) & _FSSPEC_DISKS)


def remover_of_empty(filesystem: Any) -> RemoveEmpty | None:
    """A function that removes a folder if it is empty, and raises OSError otherwise.

    None if folders are only parts of names, or if only a recursive removal exists (HDFS), which
    could remove files that another writer has just put there.
    """
    import pyarrow.fs as arrow_fs

    if isinstance(filesystem, arrow_fs.LocalFileSystem):
        return os.rmdir
    wrapped = wrapped_fsspec(filesystem)
    kinds = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(wrapped).__mro__}
    if not any(f"fsspec.implementations.{name}" in kinds for name in _CAREFUL):
        return None
    remove: RemoveEmpty = wrapped.rmdir
    return remove


def translated(error: Exception, operation: str, where: str) -> StorageError:
    """Translate an error of a filesystem's driver to a StorageError."""
    text = redact(f"{type(error).__name__}: {error}")
    if isinstance(error, StorageError):
        return error.during(operation, where)
    if isinstance(error, TimeoutError):
        return StorageUnavailable(operation, where, "no answer within the deadline")
    if _NO_BUCKET.search(text):
        return StorageRefused(operation, where, text, "Create the bucket, or correct its name")
    if isinstance(error, FileExistsError) or _EXISTS.search(text):
        return AlreadyStored(operation, where, "there is such an object already")
    if isinstance(error, FileNotFoundError):
        return NotStored(operation, where, text)
    if isinstance(error, PermissionError) or _NO_ACCESS.search(text):
        return StorageRefused(operation, where, text, _CHECK_CREDENTIALS)
    if _BUSY.search(text):
        return StorageBusy(operation, where, text)
    if isinstance(error, OSError) and error.errno is not None:
        return from_os_error(error, operation, where)
    return StorageUnavailable(operation, where, text)
