"""Checks that the packages of the extra `s3` are installed."""

from __future__ import annotations

from holdfast.lazy import Framework
from holdfast.syncer.errors import StorageRefused

_PACKAGES = [
    Framework(title=module, module=module, extra="s3")
    for module in ("aiobotocore", "crc32c", "httptools")
]


def check_extra(where: str) -> None:
    """Raise StorageRefused, naming the extra and its packages, if one is missing.

    pyarrow's own S3 filesystem is not used in its place: it has no conditional puts, which keep an
    older run out of the storage of a newer one. Users may pass it as `storage_filesystem`.
    """
    for package in _PACKAGES:
        try:
            package.check()
        except ImportError as error:
            fault, command = str(error).partition(": ")[0], f"pip install {package.requirements()}"
            cause = f"S3 needs the extra holdfast[s3], and {fault}"
            raise StorageRefused("open", where, cause, f"Install it: {command}") from None
