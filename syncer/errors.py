"""What can go wrong with storage, as types with facts.

The type says what to do: wait and try again (`StorageUnavailable`), tell the user
(`StorageRefused`), or go another way (`NotStored`, `AlreadyStored`, `ManifestMismatch`).
"""

from __future__ import annotations

import errno
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import ParamSpec, Self, TypeVar

from holdfast.errors import TuneError
from holdfast.names import printable

P = ParamSpec("P")
R = TypeVar("R")

_log = logging.getLogger(__name__)

HIDDEN = "***"

# That nobody asks who it is (gs://anonymous@bucket) is no secret.
_USERINFO = re.compile(r"(?<=://)(?!anonymous@)[^/@\s?#]*@")
_SECRET_PARAMETER = re.compile(
    r"(?i)\b([\w-]*(?:secret|token|password|passwd|signature|credential|sig|sas"
    r"|(?:access|account|api|private|shared)_?key)[\w-]*)"
    r"(\s*[=:]\s*)[^\s&'\",;)}\]]+"
)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Take credentials out of a text that a library or a server wrote.

    `secrets` are the literal values known to the caller; user info in URIs and parameters whose
    names speak of secrets are hidden whether known or not.
    """
    for secret in secrets:
        if len(secret) >= 4:  # a shorter one protects nothing, and would riddle every message
            text = text.replace(secret, HIDDEN)
    text = _USERINFO.sub(f"{HIDDEN}@", text)
    return _SECRET_PARAMETER.sub(rf"\1\2{HIDDEN}", text)


class NoAnswer(TimeoutError):
    """The disk has not answered in time: an OSError. What was asked may be done yet, or never."""


class StorageError(TuneError):
    """The base of all that this room raises.

    `operation` is what was tried ("put", "list", "stage"), `where` names the object or folder
    without credentials, `cause` is what answered and `advice` what the user can do about it.
    """

    def __init__(self, operation: str, where: str, cause: str = "", advice: str = "") -> None:
        super().__init__(operation, where, cause, advice)
        self.operation = operation
        self.where = where
        self.cause = cause
        self.advice = advice

    def __str__(self) -> str:
        told = f"{self.operation} {self.where}"
        if self.cause:
            told += f": {self.cause}"
        told = f"{told.rstrip('.')}. {self.advice}" if self.advice else told
        return printable(told, keep="\n\t")

    def __reduce__(self) -> tuple[type[Self], tuple[str, str, str, str]]:
        return type(self), (self.operation, self.where, self.cause, self.advice)

    def during(self, operation: str, where: str) -> Self:
        """The same failure, told as part of a larger operation."""
        return type(self)(operation, where, self.cause, self.advice)


class StorageUnavailable(StorageError):
    """Storage did not answer, or answered that it cannot now. Trying again may help."""


class StorageBusy(StorageUnavailable):
    """Storage answered that it cannot now (503, Slow Down). It is there, and will do it later."""


class StorageRefused(StorageError):
    """Storage answered no: permissions, credentials, a missing bucket. Trying again is useless."""


class DiskSilent(StorageError):
    """The disk did not answer in time. Another call would wait as long."""


class NotStored(StorageError):
    """There is no such object."""


class AlreadyStored(StorageError):
    """A create-only put found the object there: another writer was first."""


class InvalidLocation(StorageError, ValueError):
    """What the user gave as `storage_path` or `storage_filesystem` cannot be understood."""


class DirectoryMissing(StorageError, FileNotFoundError):
    """The directory that a checkpoint was said to be in does not exist."""

    def __init__(self, operation: str, where: str, cause: str = "", advice: str = "") -> None:
        super().__init__(operation, where, cause, advice)
        self.errno, self.strerror, self.filename = errno.ENOENT, cause, where


class CheckpointGone(NotStored, DirectoryMissing):
    """A checkpoint that is there no more, is just being removed, or is not whole yet."""


class UnusableFile(StorageError, ValueError):
    """A file that cannot be part of a checkpoint: `where` names it, `cause` says why."""


class ManifestMismatch(StorageError):
    """The files are not those that the manifest names; `problems` has a line for each."""

    def __init__(self, where: str, problems: Sequence[str]) -> None:
        shown = "; ".join(problems[:5])
        more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
        super().__init__("verify", where, shown + more)
        self.problems = tuple(problems)

    def __reduce__(self) -> tuple[type[Self], tuple[str, tuple[str, ...]]]:  # type: ignore[override]
        return type(self), (self.where, self.problems)

    def during(self, operation: str, where: str) -> Self:
        """The same problems, found while doing something larger."""
        mismatch = type(self)(where, self.problems)
        mismatch.operation = operation
        return mismatch


def short(call: Callable[P, R]) -> Callable[P, R]:
    """For what users call: an error of storage comes without its history, of which the last of
    seventy lines would say what happened.

    The log `holdfast.syncer.errors` (DEBUG) has the history.
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
    """What a task group's error is about: the first of those that are in it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def from_os_error(error: OSError, operation: str, where: str) -> StorageError:
    """Translate what the operating system answered, at the border of this room."""
    cause = error.strerror or str(error)
    if isinstance(error, NoAnswer):
        return DiskSilent(operation, where, cause, "Look at the disk or network file system")
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
            return StorageUnavailable(operation, where, cause, "Make space and try again")
        case _:
            return StorageUnavailable(operation, where, cause)
