"""Sends puts, uploads in parts, copies, reads, ranges, listings and deletions to S3 without
botocore; all other requests use botocore.

botocore takes 2 ms of CPU for a put of 4 KiB, this takes 0.2 ms, and to import it and make a
client takes 0.4 s (2 cores, Python 3.11). So there is no client until one is needed. The address,
the region and the keys are known from the URI (`addressing.py`), or learned from botocore's own
requests. A request that does not succeed is repeated with botocore, which retries, follows a
bucket to its region and explains errors; but it is final if there is no such object, a condition
does not hold, or the server does not know what was asked. Repeating these operations is safe:
after a conditional put, a mark identifies holdfast's own object.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Protocol, TypeVar, cast

from holdfast.syncer.stores.s3 import answers, requests
from holdfast.syncer.stores.s3.addressing import Way, known_keys, known_way, learned_way
from holdfast.syncer.stores.s3.client import CONNECT_S, READ_S, Botocore
from holdfast.syncer.stores.s3.errors import AnsweredError, code_and_status
from holdfast.syncer.stores.s3.http import Answer, Credentials, Lines, SignedRequest, Sink, signed
from holdfast.syncer.stores.s3.options import seconds
from holdfast.syncer.stores.s3.requests import PLAIN, headers_of, upload_query

R = TypeVar("R")

# After this many failures in a row that botocore does not have, only botocore is used.
_TRIES = 3
_SLOWEST_BYTES_PER_S = 256 << 10
_CHUNK_BYTES = 256 << 10
_LEARNED_FROM = ("GET", "PUT")
_NONE: Mapping[str, str] = {}


class Incoming(Sink, Protocol):
    """A part of an object that arrives (`ranges.py`)."""

    @property
    def got(self) -> int:
        """The bytes that have arrived."""

    def asked(self) -> Mapping[str, str]:
        """botocore's parameters for those that are missing."""


class DirectS3:
    """An aiobotocore client whose methods below avoid botocore if possible. The answer of each put
    or copy has the `ETag`, and the `ChecksumCRC32C` if the server returns it. All methods raise
    what botocore raises, or AnsweredError."""

    def __init__(self, options: Mapping[str, str], bucket: str) -> None:
        """`options` are those of an S3 URI. The deadline of an answer is its `request_timeout`,
        and a second more for each 256 KiB that are sent; that of a connection is its
        `connect_timeout`."""
        self._bucket = bucket
        self._botocore = Botocore(options, self._learn)
        self._keys = known_keys(options, os.environ)
        self._request_timeout_s = seconds(options, "request_timeout", READ_S)
        self._connect_timeout_s = seconds(options, "connect_timeout", CONNECT_S)
        # For each address, because botocore may change it more than once.
        self._opened: dict[Way, Lines] = {}
        self._way: Way | None = None
        if self._keys is not None:
            self._use(known_way(options, bucket, os.environ))
        self._failures = 0

    def __getattr__(self, operation: str) -> Any:
        async def perform(**asked: Any) -> Any:
            return await self._by_botocore(operation, asked)

        return perform

    async def put_object(self, **asked: Any) -> Mapping[str, Any]:
        return await self._send("put_object", asked)

    async def upload_part(self, **asked: Any) -> Mapping[str, Any]:
        return await self._send("upload_part", asked)

    async def copy_object(self, **asked: Any) -> Mapping[str, Any]:
        answer = await self._send("copy_object", asked)
        return cast(Mapping[str, Any], answer.get("CopyObjectResult", answer))

    async def upload_part_copy(self, **asked: Any) -> Mapping[str, Any]:
        answer = await self._send("upload_part_copy", asked)
        return cast(Mapping[str, Any], answer.get("CopyPartResult", answer))

    async def create_multipart_upload(self, **asked: Any) -> Mapping[str, Any]:
        async def directly(way: Way) -> Mapping[str, Any] | None:
            if not asked.keys() <= PLAIN:
                return None
            path = way.path_of(asked["Key"])
            answer = await self._ask(way, "POST", path, {"uploads": ""}, headers_of(asked))
            return answers.upload_in(answer)

        return await self._either(directly, "create_multipart_upload", asked)

    async def complete_multipart_upload(self, **asked: Any) -> Mapping[str, Any]:
        """It may fail after the status 200 was sent, which only the body says; botocore's request
        then finds the upload, the object, or neither."""
        plain = {name: value for name, value in asked.items() if name != "MultipartUpload"}

        async def directly(way: Way) -> Mapping[str, Any] | None:
            if not plain.keys() <= PLAIN:
                return None
            path, headers = way.path_of(asked["Key"]), headers_of(asked)
            body = requests.completion(asked["MultipartUpload"]["Parts"])
            answer = await self._ask(way, "POST", path, upload_query(asked), headers, body)
            return answers.completed_in(answer)

        return await self._either(directly, "complete_multipart_upload", asked)

    async def abort_multipart_upload(self, **asked: str) -> Mapping[str, Any]:
        return await self._delete("abort_multipart_upload", asked)

    async def delete_object(self, **asked: str) -> Mapping[str, Any]:
        return await self._delete("delete_object", asked)

    async def delete_objects(self, **asked: Any) -> Mapping[str, Any]:
        async def directly(way: Way) -> Mapping[str, Any] | None:
            keys = [item["Key"] for item in asked["Delete"]["Objects"]]
            body, headers = requests.deletion(keys)
            answer = await self._ask(way, "POST", way.base, {"delete": ""}, headers, body)
            return answers.failures_in(answer)

        return await self._either(directly, "delete_objects", asked)

    async def read_object(self, **bucket_key: str) -> bytes:
        """The content of a small object."""

        async def directly(way: Way) -> bytes | None:
            answer = await self._ask(way, "GET", way.path_of(bucket_key["Key"]))
            return bytes(answer.body) if answer.status == 200 else None

        async def by_botocore() -> bytes:
            answer = await self._by_botocore("get_object", bucket_key)
            async with answer["Body"] as body:
                return bytes(await body.read())

        return await self._either_way(directly, by_botocore)

    async def get_range(self, bucket_key: Mapping[str, str], part: Incoming) -> None:
        """Ask for the bytes that are missing of a part, which takes them as they arrive. If the
        connection breaks off, some may be missing still. Raises what the part raises, too."""

        async def directly(way: Way) -> bool | None:
            path, before = way.path_of(bucket_key["Key"]), part.got
            try:
                answer = await self._ask(
                    way, "GET", path, _NONE, headers_of(part.asked()), sink=part
                )
            except ConnectionError:
                if part.got == before:
                    raise
                return True
            return True if answer.status in (200, 206) else None

        async def by_botocore() -> bool:
            answer = await self._by_botocore("get_object", {**bucket_key, **part.asked()})
            async with answer["Body"] as body:
                part.begin(answer["ResponseMetadata"]["HTTPHeaders"])
                async for chunk in body.iter_chunks(_CHUNK_BYTES):
                    part.write(chunk)
            return True

        await self._either_way(directly, by_botocore)

    async def head_object(self, **bucket_key: str) -> Mapping[str, Any]:
        found = await self.find_object(**bucket_key)
        if found is None:
            raise AnsweredError("404", 404, f"there is no object {bucket_key['Key']}")
        return found

    async def find_object(self, **bucket_key: str) -> Mapping[str, Any] | None:
        """The answer of `head_object`; None without an object."""

        async def directly(way: Way) -> tuple[Mapping[str, Any] | None] | None:
            answer = await self._ask(way, "HEAD", way.path_of(bucket_key["Key"]))
            if answer.status == 404:
                return (None,)
            facts = answers.head_of(answer.headers) if answer.status == 200 else None
            return None if facts is None else (facts,)

        async def by_botocore() -> tuple[Mapping[str, Any] | None]:
            try:
                return (await self._by_botocore("head_object", bucket_key),)
            except Exception as error:
                if code_and_status(error)[1] != 404:
                    raise
                return (None,)

        (found,) = await self._either_way(directly, by_botocore)
        return found

    async def list_objects_v2(self, **asked: str) -> Mapping[str, Any]:
        query = {**requests.listing_query(asked, requests.OBJECTS_QUERY), "list-type": "2"}
        return await self._list("list_objects_v2", asked, query, answers.objects_in)

    async def list_multipart_uploads(self, **asked: str) -> Mapping[str, Any]:
        query = {**requests.listing_query(asked, requests.UPLOADS_QUERY), "uploads": ""}
        return await self._list("list_multipart_uploads", asked, query, answers.uploads_in)

    async def close(self) -> None:
        for lines in self._opened.values():
            await lines.close()
        await self._botocore.close()

    # -- both ways --

    async def _send(self, operation: str, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        async def directly(way: Way) -> Mapping[str, Any] | None:
            if not asked.keys() <= PLAIN:
                return None
            path, body = way.path_of(asked["Key"]), asked.get("Body", b"")
            query, headers = upload_query(asked), headers_of(asked)
            answer = await self._ask(way, "PUT", path, query, headers, body)
            return answers.facts_of(answer, is_copy="CopySource" in asked)

        return await self._either(directly, operation, asked)

    async def _list(
        self,
        operation: str,
        asked: Mapping[str, str],
        query: Mapping[str, str],
        read: Callable[[bytearray], Mapping[str, Any] | None],
    ) -> Mapping[str, Any]:
        """A page of a listing, which `read` finds in the body of an answer."""

        async def directly(way: Way) -> Mapping[str, Any] | None:
            answer = await self._ask(way, "GET", way.base, query)
            return read(answer.body) if answer.status == 200 else None

        return await self._either(directly, operation, asked)

    async def _delete(self, operation: str, asked: Mapping[str, str]) -> Mapping[str, Any]:
        """Delete an object, or an upload that is not complete."""

        async def directly(way: Way) -> Mapping[str, Any] | None:
            path = way.path_of(asked["Key"])
            answer = await self._ask(way, "DELETE", path, upload_query(asked))
            return {} if answer.status == 204 else None

        return await self._either(directly, operation, asked)

    async def _either(
        self,
        directly: Callable[[Way], Awaitable[Mapping[str, Any] | None]],
        operation: str,
        asked: Mapping[str, Any],
    ) -> Mapping[str, Any]:
        return await self._either_way(directly, partial(self._by_botocore, operation, asked))

    async def _either_way(
        self,
        directly: Callable[[Way], Awaitable[R | None]],
        by_botocore: Callable[[], Awaitable[R]],
    ) -> R:
        """Perform a request directly; by botocore if that is not possible or does not succeed."""
        way = self._way if self._failures < _TRIES else None
        if way is not None:
            try:
                found = await directly(way)
            except ConnectionError:
                found = None
            if found is not None:
                self._failures = 0
                return found
        answer = await by_botocore()
        if way is not None:  # botocore's request succeeded, and the direct one did not
            self._failures += 1
        return answer

    async def _by_botocore(self, operation: str, asked: Mapping[str, Any]) -> Any:
        if isinstance(asked.get("Body"), memoryview):  # botocore does not accept one
            asked = {**asked, "Body": bytes(asked["Body"])}
        return await getattr(await self._botocore.client(), operation)(**asked)

    async def _ask(
        self,
        way: Way,
        method: str,
        path: str,
        query: Mapping[str, str] = _NONE,
        headers: Mapping[str, str] = _NONE,
        body: bytes | memoryview = b"",
        sink: Sink | None = None,
    ) -> Answer:
        """The answer to a signed request. Raises ConnectionError, and AnsweredError if botocore
        would get the same answer."""
        request = SignedRequest(
            method=method, path=path, query=query, headers={"host": way.host, **headers}
        )
        keys = self._keys or self._botocore.credentials
        credentials: Credentials = await keys.get_frozen_credentials()
        answer = await self._opened[way].ask(
            method,
            request.target,
            signed(request, credentials, way.region, time.time()),
            body,
            deadline_s=self._request_timeout_s + len(body) / _SLOWEST_BYTES_PER_S,
            sink=sink,
        )
        if (error := answers.final_error(answer)) is not None:
            raise error
        return answer

    def _learn(self, request: Any, ca_bundle: str) -> None:
        """Called with each signed request of botocore's."""
        if request.method in _LEARNED_FROM:
            self._use(learned_way(request, self._bucket, ca_bundle))

    def _use(self, way: Way | None) -> None:
        if way is not None and way != self._way:
            if way not in self._opened:
                self._opened[way] = way.lines(self._connect_timeout_s)
            self._way = way
