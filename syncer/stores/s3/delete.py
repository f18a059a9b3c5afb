"""Deletes objects of S3: a thousand per request, or one by one if the server requires it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from holdfast.dataclass import dataclass
from holdfast.syncer.errors import NotStored, StorageError, StorageRefused
from holdfast.syncer.stores.s3.client import CONNECTIONS
from holdfast.syncer.stores.s3.errors import cause_of, code_and_status, refused_object
from holdfast.syncer.stores.store import for_each

R = TypeVar("R")

_BATCH = 1000
_NO_BATCHES = {"MethodNotAllowed", "MissingContentMD5", "NotImplemented"}


def _refused(
    errors: Iterable[Mapping[str, Any]], named: Mapping[str, str]
) -> dict[str, StorageError]:
    """The failures in an answer, by key. A failure with an unknown key counts as well, because the
    deletion that it belongs to is not known."""
    failures: dict[str, StorageError] = {}
    for item in errors:
        name = str(item.get("Key", ""))
        key = named.get(name, f"{name!r:.100}, which was not requested")
        failures[key] = refused_object(item.get("Code", ""), item.get("Message", ""), key)
    return failures


class DeleteRequest(Protocol):
    """Performs a request for an operation on a key, and translates its errors."""

    def __call__(
        self, operation: str, key: str, request: Callable[[Any], Awaitable[R]]
    ) -> Awaitable[R]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """Deletions of keys below a prefix."""

    call: DeleteRequest
    bucket: str
    prefix: str

    async def perform(self, keys: Sequence[str]) -> dict[str, StorageError]:
        """Try all keys; return the failures by key. Raises StorageError if no request succeeds."""
        failures: dict[str, StorageError] = {}
        for start in range(0, len(keys), _BATCH):
            failures |= await self._delete_batch(keys[start : start + _BATCH])
        return failures

    async def _delete_batch(self, keys: Sequence[str]) -> dict[str, StorageError]:
        # The batch is sent as XML 1.0, which cannot contain control characters.
        named = {self.prefix + key: key for key in keys if key.isprintable()}
        single = [key for key in keys if not key.isprintable()]
        failures: dict[str, StorageError] = {}
        if named:
            objects = {"Objects": [{"Key": name} for name in named], "Quiet": True}
            try:
                answer = await self.call(
                    "delete", "", lambda s3: s3.delete_objects(Bucket=self.bucket, Delete=objects)
                )
                failures |= _refused(answer.get("Errors", ()), named)
            except StorageRefused as error:
                if code_and_status(cause_of(error))[0] not in _NO_BATCHES:
                    raise
                single = list(keys)

        async def delete_one(key: str) -> None:
            bucket_key = {"Bucket": self.bucket, "Key": self.prefix + key}
            try:
                await self.call("delete", key, lambda s3: s3.delete_object(**bucket_key))
            except NotStored:
                return
            except StorageError as error:
                failures[key] = error

        await for_each(delete_one, single, at_once=CONNECTIONS)
        return failures
