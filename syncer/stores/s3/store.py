"""A store in an S3 bucket. `upload.py` sends the bytes, `ranges.py` receives them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from holdfast.lazy import Framework
from holdfast.syncer.errors import (
    AlreadyStored,
    NotStored,
    StorageError,
    StorageRefused,
    StorageUnavailable,
    os_errors,
)
from holdfast.syncer.files.durable import is_leftover, new_file, new_file_for
from holdfast.syncer.stores.s3.answers import ODD, Unfinished, answered
from holdfast.syncer.stores.s3.client import AT_ONCE, ONLY_NEW, Client
from holdfast.syncer.stores.s3.options import is_set
from holdfast.syncer.stores.s3.ranges import RangedDownload
from holdfast.syncer.stores.s3.upload import (
    COPIED_PART_BYTES,
    COPY_AT_MOST_BYTES,
    MULTIPART_FROM_BYTES,
    Buffers,
    Checksums,
    Multipart,
    abort,
    from_source,
    is_etag_of,
    part_bytes,
    put_whole,
    read_body,
    read_source,
)
from holdfast.syncer.stores.store import (
    ObjectInfo,
    PutResult,
    check_key,
    deletion_failure,
    folder_prefix,
    for_each,
    source_size,
)

_IN_FLIGHT_BYTES = 64 << 20
_DOWNLOADS_AT_ONCE = 16
_PACKAGES = [
    Framework(title=module, module=module, extra="s3")
    for module in ("botocore", "crc32c", "httptools")
]
_BATCH = 1000
_NO_BATCHES = {"MethodNotAllowed", "MissingContentMD5", "NotImplemented"}


class S3Store:
    """Objects below `prefix` in a bucket. The first operation creates the client.

    `options` are those of an S3 URI (`options.py`), including credentials.
    """

    has_folders = False

    def __init__(
        self, bucket: str, prefix: str = "", *, options: Mapping[str, str], where: str = ""
    ) -> None:
        self._bucket = bucket
        self._prefix = folder_prefix(prefix)
        self._options = dict(options)
        self.where = where or f"s3://{bucket}/{prefix}"
        self._opening = asyncio.Lock()
        self._client: Client | None = None
        self._honours_conditions: bool | None = None
        self._buffers = Buffers(_IN_FLIGHT_BYTES)
        self._arriving = asyncio.Semaphore(_DOWNLOADS_AT_ONCE)
        self._checksums = Checksums()
        # Unfinished uploads by key, as far as they are known; one per key.
        self._begun: dict[str, Unfinished] = {}

    @property
    def conditional_puts(self) -> bool | None:
        return self._honours_conditions

    async def put(
        self,
        key: str,
        source: bytes | Path,
        *,
        create_only: bool = False,
        resumable: bool = False,
    ) -> PutResult:
        async with self._asking("put", key) as s3:
            size = from_source(lambda: source_size(source), self._shown(key))
            is_large = size >= MULTIPART_FROM_BYTES
            condition: Mapping[str, str] = {}
            if create_only:
                if not self._honours_conditions and await s3.head(self._name(key)) is not None:
                    raise AlreadyStored("put", key, "there is such an object already")
                if self._honours_conditions or (self._honours_conditions is None and not is_large):
                    condition = ONLY_NEW
            if is_large:
                return await Multipart(
                    s3=s3,
                    name=self._name(key),
                    source=source,
                    size=size,
                    each=part_bytes(size),
                    buffers=self._buffers,
                    checksums=self._checksums,
                    condition=condition,
                    begun=self._begun.pop(key, None) if resumable else None,
                    leave=partial(self._begun.__setitem__, key) if resumable else None,
                ).upload()
            async with self._buffers.lent(size) as buffer:
                with_md5 = not self._checksums.knows_crc
                read = partial(read_body, source, 0, size, buffer, with_md5=with_md5)
                body = await read_source(read, size, self._shown(key))
                put = partial(put_whole, s3, self._name(key), body, checksums=self._checksums)
                if condition and self._honours_conditions is None:
                    return await self._put_probing(put)
                return await put(condition)

    async def _put_probing(
        self, put: Callable[[Mapping[str, str]], Awaitable[PutResult]]
    ) -> PutResult:
        """Put a new object, and then put it again to find out whether the server refuses that."""
        try:
            stored = await put(ONLY_NEW)
        except AlreadyStored:
            self._honours_conditions = True
            raise
        except StorageRefused as error:
            if answered(error)[1] != 501:
                raise
            self._honours_conditions = False
            return await put({})
        try:
            await put(ONLY_NEW)
            self._honours_conditions = False
        except AlreadyStored:
            self._honours_conditions = True
        except StorageError:  # the object is stored; the next put will probe again
            pass
        return stored

    async def copy(self, source: ObjectInfo, key: str) -> PutResult:
        origin = replace(source, key=self._name(source.key))
        try:
            async with self._asking("copy", key) as s3:
                if source.size > COPY_AT_MOST_BYTES:
                    return await Multipart(
                        s3=s3,
                        name=self._name(key),
                        source=origin,
                        size=source.size,
                        each=COPIED_PART_BYTES,
                        buffers=self._buffers,
                        checksums=self._checksums,
                    ).upload()
                copied = await s3.copy(origin, self._name(key))
        except AlreadyStored as error:  # the source has another ETag
            cause = "another object is there now"
            raise NotStored("copy", self._shown(source.key), cause) from error
        return PutResult(size=source.size, etag=copied.etag)

    async def holds(self, entry: ObjectInfo, source: Path) -> bool:
        size = from_source(lambda: source_size(source), self._shown(entry.key))
        etag = entry.etag
        if etag is None or entry.size != size:
            return False
        compare = partial(is_etag_of, etag, source, size)
        return await read_source(compare, size, self._shown(entry.key))

    async def unfinished(self, prefix: str = "") -> list[str]:
        try:
            async with self._asking("list", prefix) as s3:
                uploads = await s3.uploads(self._prefix + folder_prefix(prefix))
        except (StorageRefused, NotStored):  # without permission to list, nothing is continued
            return []
        for upload in uploads:
            key = self._key(upload.name)
            older = self._begun.get(key)
            self._begun[key] = upload
            if older is not None and older.upload_id != upload.upload_id:
                await self._abort(older)
        return self._begun_in(prefix)

    def _begun_in(self, prefix: str) -> list[str]:
        below = folder_prefix(prefix)
        return sorted(key for key in self._begun if key.startswith(below))

    async def abandon(self, prefix: str = "") -> None:
        for key in self._begun_in(prefix):
            await self._abort(self._begun.pop(key))

    async def _abort(self, begun: Unfinished) -> None:
        async with self._asking("abort", self._key(begun.name)) as s3:
            await abort(s3, begun)

    async def get(self, key: str, target: Path) -> int:
        with os_errors("get", self._shown(key)), new_file_for(target) as file:
            return (await self._download(key, file.fileno()))[0]

    async def get_hashed(self, entry: ObjectInfo, target: Path, algorithm: str | None) -> str:
        with os_errors("get", self._shown(entry.key)), new_file(target) as descriptor:
            return (await self._download(entry.key, descriptor, entry.size, algorithm))[1]

    async def _download(
        self, key: str, descriptor: int, size: int | None = None, algorithm: str | None = None
    ) -> tuple[int, str]:
        async with self._asking("get", key) as s3:
            return await RangedDownload(
                s3=s3,
                slots=self._arriving,
                name=self._name(key),
                where=self._shown(key),
                descriptor=descriptor,
            ).perform(size, algorithm)

    async def read(self, key: str) -> bytes:
        async with self._asking("read", key) as s3:
            return await s3.read(self._name(key))

    async def list(self, prefix: str = "", *, leftovers: bool = False) -> list[ObjectInfo]:
        async with self._asking("list", prefix) as s3:
            found = await s3.objects(self._prefix + folder_prefix(prefix))
            entries = {self._key(one.key): one for one in found}
        return [
            replace(entry, key=key)
            for key, entry in sorted(entries.items())
            # Consoles and other tools create empty objects that stand for folders.
            if not key.endswith("/") and (leftovers or not is_leftover(entry.name))
        ]

    async def head(self, key: str) -> ObjectInfo | None:
        async with self._asking("head", key) as s3:
            found = await s3.head(self._name(key))
        return None if found is None else replace(found.info, key=key)

    async def delete(self, keys: Iterable[str]) -> None:
        """A thousand per request, or one by one if the server requires it."""
        named = {self._name(key): key for key in keys}
        # A batch is sent as XML 1.0, which cannot contain control characters.
        single = [name for name in named if not name.isprintable()]
        batched = [name for name in named if name.isprintable()]
        failures: dict[str, StorageError] = {}
        async with self._asking("delete", "") as s3:
            for start in range(0, len(batched), _BATCH):
                batch = batched[start : start + _BATCH]
                try:
                    failures |= await s3.delete_many(batch)
                except StorageRefused as error:
                    if answered(error)[0] not in _NO_BATCHES:
                        raise
                    single += batch

            async def delete_one(name: str) -> None:
                try:
                    await s3.delete(name)
                except NotStored:
                    return
                except StorageError as error:
                    failures[name] = error

            await for_each(delete_one, single, at_once=AT_ONCE)
        if failures:
            # A failure with an unknown key counts as well, because the deletion that it belongs to
            # is not known.
            told = {
                named.get(name, f"{name!r:.100}, which was not requested"): error
                for name, error in failures.items()
            }
            raise deletion_failure(self.where, told)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def _name(self, key: str) -> str:
        return self._prefix + check_key(key)

    def _key(self, name: str) -> str:
        """The key of an object in a listing. Raises StorageUnavailable if it is elsewhere."""
        if not name.startswith(self._prefix):
            cause = f"the storage answered with {name!r:.100}, which is not in this folder"
            raise StorageUnavailable("list", self.where, cause, ODD)
        return name.removeprefix(self._prefix)

    def _shown(self, key: str) -> str:
        return f"s3://{self._bucket}/{self._prefix}{key}"

    @asynccontextmanager
    async def _asking(self, operation: str, key: str) -> AsyncIterator[Client]:
        """The client, for an operation whose errors name the key."""
        try:
            yield self._client or await self._open()
        except StorageError as error:
            raise error.during(operation, self._shown(key)) from error

    async def _open(self) -> Client:
        async with self._opening:
            if self._client is None:
                check_extra(self.where)
                client = Client(self._options, self._bucket)
                if is_set(self._options, "allow_bucket_creation"):
                    try:
                        await client.make_bucket(self._options.get("region"))
                    except BaseException:
                        await client.close()
                        raise
                self._client = client
            return self._client


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
