"""The errors of storage. Their messages state facts.

The type says how to react: retry (`StorageUnavailable`), report to the user (`StorageRefused`), or
do something else (`NotStored`, `AlreadyStored`, `ManifestMismatch`).
"""

from __future__ import annotations

import errno
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, Self, TypeVar

from holdfast.errors import TuneError
from holdfast.names import printable

P = ParamSpec("P")
R = TypeVar("R")

_log = logging.getLogger(__name__)

HIDDEN = "***"

# The user `anonymous` (gs://anonymous@bucket) is not a secret.
_USERINFO = re.compile(r"(?<=://)(?!anonymous@)[^/@\s?#]*@")
_SECRET_PARAMETER = re.compile(
    r"(?i)\b([\w-]*(?:secret|token|password|passwd|signature|credential|sig|sas"
    r"|(?:access|account|api|private|shared)_?key)[\w-]*)"
    r"(\s*[=:]\s*)[^\s&'\",;)}\]]+"
)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Remove credentials from a text that a library or a server wrote.

    `secrets` are the values that the caller knows. User info in URIs and the values of parameters
    with names such as `secret` are always removed.
    """
    for secret in secrets:
        if len(secret) >= 4:  # a shorter one is no protection, and would garble every message
            text = text.replace(secret, HIDDEN)
    text = _USERINFO.sub(f"{HIDDEN}@", text)
    return _SECRET_PARAMETER.sub(rf"\1\2{HIDDEN}", text)


class NoAnswer(TimeoutError):
    """The disk has not answered in time. The call may still succeed later, or never."""


# The calls of a store whose names say little to its user.
_WORDS = {"head": "read"}


class StorageError(TuneError):
    """Base class of the errors in `holdfast.syncer`.

    `operation` is the failed operation ("put", "list", "stage"), `where` the object or folder,
    without credentials, `cause` the reason, and `advice` what the user can do.
    """

    def __init__(self, operation: str, where: str, cause: str = "", advice: str = "") -> None:
        super().__init__(operation, where, cause, advice)
        self.operation = operation
        self.where = where
        self.cause = cause
        self.advice = advice

    def __str__(self) -> str:
        told = f"cannot {_WORDS.get(self.operation, self.operation)} {self.where}"
        if self.cause:
            told += f": {self.cause}"
        told = f"{told.rstrip('.')}. {self.advice}" if self.advice else told
        return printable(told, keep="\n\t")

    def __reduce__(self) -> tuple[type[Self], tuple[str, str, str, str]]:
        return type(self), (self.operation, self.where, self.cause, self.advice)

    def during(self, operation: str, where: str) -> Self:
        """The same failure, as a part of a larger operation."""
        return type(self)(operation, where, self.cause, self.advice)


class StorageUnavailable(StorageError):
    """Storage did not answer, or cannot do it now. A retry may help."""


class StorageBusy(StorageUnavailable):
    """Storage is overloaded (503, Slow Down). A later retry should succeed."""


class StorageRefused(StorageError):
    """Storage refused: permissions, credentials, a missing bucket. A retry would not help."""


class DiskSilent(StorageError):
    """The disk did not answer in time. Another call would take as long."""


class NotStored(StorageError):
    """The object does not exist."""


class AlreadyStored(StorageError):
    """A create-only put failed because the object exists: another writer was first."""


class InvalidLocation(StorageError, ValueError):
    """The user's `storage_path` or `storage_filesystem` is not valid."""


class DirectoryMissing(StorageError, FileNotFoundError):
    """The directory for a checkpoint does not exist."""

    def __init__(self, operation: str, where: str, cause: str = "", advice: str = "") -> None:
        super().__init__(operation, where, cause, advice)
        self.errno, self.strerror, self.filename = errno.ENOENT, cause, where


class CheckpointGone(NotStored, DirectoryMissing):
    """The checkpoint was removed, is being removed, or is not complete yet."""


class UnusableFile(StorageError, ValueError):
    """A file that cannot be part of a checkpoint: `where` names it, `cause` says why."""


class ManifestMismatch(StorageError):
    """The files do not match the manifest; `problems` has a line for each difference."""

    def __init__(self, where: str, problems: Sequence[str]) -> None:
        shown = "; ".join(problems[:5])
        more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
        super().__init__("verify", where, shown + more)
        self.problems = tuple(problems)

    def __reduce__(self) -> tuple[type[Self], tuple[str, tuple[str, ...]]]:  # type: ignore[override]
        return type(self), (self.where, self.problems)

    def during(self, operation: str, where: str) -> Self:
        """The same problems, as a part of a larger operation."""
        mismatch = type(self)(where, self.problems)
        mismatch.operation = operation
        return mismatch


def short(call: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function that users call: its storage errors have no chain of causes, which would
    be seventy lines with the message at the end.

    The log `holdfast.syncer.errors` (DEBUG) has the chain.
    """

    @wraps(call)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return call(*args, **kwargs)
        except StorageError as error:
            _log.debug("cut off from %s", type(error).__name__, exc_info=error)
            error.__context__ = None
            raise error.with_traceback(None) from None

    return called


def innermost(error: BaseException) -> BaseException:
    """The first error in a task group's exception group, innermost."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


@contextmanager
def os_errors(operation: str, where: str) -> Iterator[None]:
    """Translate errors of the operating system in this block to StorageError."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise from_os_error(error, operation, where) from error


def from_os_error(error: OSError, operation: str, where: str) -> StorageError:
    """Translate an error of the operating system to a StorageError."""
    cause = error.strerror or str(error)
    if isinstance(error, NoAnswer):
        return DiskSilent(operation, where, cause, "Check the disk or network file system")
    if error.filename is not None and str(error.filename) not in where:
        cause = f"{cause}: {error.filename}"
    match error.errno:
        case errno.ENOENT:
            return NotStored(operation, where, cause)
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return StorageRefused(operation, where, cause)
        case errno.ENOTDIR | errno.EISDIR | errno.ENAMETOOLONG | errno.ELOOP:
            return StorageRefused(operation, where, cause)
        case errno.ENOSPC | errno.EDQUOT:
            return StorageUnavailable(operation, where, cause, "Free some space and try again")
        case _:
            return StorageUnavailable(operation, where, cause)
