"""Pages of listings, read as botocore reads them."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, Protocol

import crc32c
import pytest

from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.s3.answers import failures_in, objects_in, uploads_in
from holdfast.syncer.stores.s3.http import Answer
from holdfast.syncer.stores.store import ObjectInfo

MOMENT = "Fri, 27 Nov 2026 01:02:03 GMT"
FIRST = (
    b"<Contents><Key>x/a+b%2Bc</Key><LastModified>2026-11-27T01:02:03.000Z</LastModified>"
    b"<ETag>&quot;e&quot;</ETag><Size>5</Size><StorageClass>STANDARD</StorageClass></Contents>"
)
HEAD = b"<EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>"
NEXT = b"<NextContinuationToken>a+token%2B</NextContinuationToken>"


def page(
    content: bytes, *, namespace: bytes = b"http://s3.amazonaws.com/doc/2006-03-01/"
) -> bytes:
    return b'<ListBucketResult xmlns="' + namespace + b'">' + content + b"</ListBucketResult>"


def by_botocore(body: bytes) -> dict[str, Any]:
    """As a client of botocore gives it to its caller."""
    from botocore import UNSIGNED
    from botocore.awsrequest import AWSResponse
    from botocore.config import Config
    from botocore.session import get_session

    client = get_session().create_client(
        "s3", region_name="us-east-1", config=Config(signature_version=UNSIGNED)
    )

    class Raw:
        def stream(self, **_: object) -> Any:
            yield body

    answer = AWSResponse("http://x/", 200, {}, Raw())
    client.meta.events.register("before-send.s3", lambda **_: answer)
    found: dict[str, Any] = client.list_objects_v2(Bucket="bucket")
    client.close()
    return found


@pytest.mark.parametrize(
    "body",
    [
        page(HEAD + NEXT + FIRST + FIRST.replace(b"x/a", b"x/%C3%A9")),
        page(HEAD.replace(b"true", b"false") + FIRST),
        page(b"<IsTruncated>false</IsTruncated>"),
    ],
)
def test_a_page_says_what_it_says_to_botocore(body: bytes) -> None:
    ours, theirs = objects_in(body), by_botocore(body)
    assert ours is not None
    kept = ("Key", "Size", "ETag", "LastModified")
    assert [[one[name] for name in kept] for one in ours["Contents"]] == [
        [one[name] for name in kept] for one in theirs.get("Contents", [])
    ]
    assert ours["IsTruncated"] == theirs["IsTruncated"]
    assert ours["NextContinuationToken"] == theirs.get("NextContinuationToken")


def test_keys_that_are_not_encoded_stay_as_they_are() -> None:
    found = objects_in(page(b"<IsTruncated>false</IsTruncated>" + FIRST, namespace=b""))
    assert found is not None
    assert [entry["Key"] for entry in found["Contents"]] == ["x/a+b%2Bc"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"<Error><Code>SlowDown</Code></Error>",
        page(FIRST),
        page(HEAD + FIRST.replace(b"<Size>5", b"<Size>five")),
    ],
)
def test_what_is_not_a_page_is_left_to_botocore(body: bytes) -> None:
    assert objects_in(body) is None


def crc(body: bytes) -> str:
    return base64.b64encode(crc32c.crc32c(body).to_bytes(4, "big")).decode()


class Scripted(Protocol):
    requests: list[tuple[str, str]]

    def location(self, respond: Callable[[str, str, str, bytes], Any]) -> Location: ...


@pytest.mark.anyio
@pytest.mark.parametrize("is_understood", [True, False])
async def test_after_a_put_listings_and_reads_go_the_short_way_if_it_works(
    scripted: Scripted, is_understood: bool
) -> None:
    ways: list[tuple[str, bool]] = []

    def respond(method: str, path: str, head: str, body: bytes) -> Any:
        is_direct = "user-agent" not in head.lower()
        ways.append((method, is_direct))
        if method == "PUT":
            return 200, {"ETag": '"e"', "x-amz-checksum-crc32c": crc(body)}, b""
        if is_direct and not is_understood:
            return 500, {}, b""
        if method == "HEAD":
            return 200, {"Content-Length": "5", "ETag": '"e"', "Last-Modified": MOMENT}, b""
        if "list-type=2" in path:
            return 200, {}, page(b"<IsTruncated>false</IsTruncated>" + FIRST)
        return 200, {}, b"bytes"

    store = scripted.location(respond).open_store()
    await store.put("key", b"bytes")
    ways.clear()
    assert [entry.key for entry in await store.list()] == ["a+b%2Bc"]
    assert await store.read("key") == b"bytes"
    found = await store.head("key")
    assert found == ObjectInfo(key="key", size=5, etag="e", modified=1795741323.0)
    await store.close()
    tries = [True] if is_understood else [True, False]
    assert ways == [(method, how) for method in ("GET", "GET", "HEAD") for how in tries]


@pytest.mark.anyio
@pytest.mark.parametrize(("status", "size"), [(404, "0"), (200, "?")])
async def test_an_object_is_missing_only_if_the_server_says_so(
    scripted: Scripted, status: int, size: str
) -> None:
    asked: list[str] = []

    def respond(method: str, path: str, head: str, body: bytes) -> Any:
        asked.append(method)
        if method == "PUT":
            return 200, {"ETag": '"e"', "x-amz-checksum-crc32c": crc(body)}, b""
        is_direct = "user-agent" not in head.lower()
        return status, {"Content-Length": size if is_direct else "7"}, b""

    store = scripted.location(respond).open_store()
    await store.put("key", b"bytes")
    found = await store.head("other")
    await store.put("key", b"bytes")  # over the same connection
    await store.close()
    assert (found and found.size) == (None if status == 404 else 7)
    assert asked == ["PUT", *(["HEAD"] if status == 404 else ["HEAD"] * 2), "PUT"]


UPLOAD = (
    b"<Upload><Key>x/a+b%2Bc</Key><UploadId>id&amp;1</UploadId>"
    b"<ChecksumAlgorithm>CRC32C</ChecksumAlgorithm></Upload>"
)


def uploads(content: bytes) -> bytes:
    name = b"ListMultipartUploadsResult"
    return b"<" + name + b">" + content + b"</" + name + b">"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (uploads(b""), {"Uploads": [], "IsTruncated": False}),
        (uploads(UPLOAD), {"Uploads": [("x/a+b%2Bc", "id&1", "CRC32C")], "IsTruncated": False}),
        (
            uploads(HEAD + b"<NextKeyMarker>x/a+b</NextKeyMarker>" + UPLOAD),
            {"Uploads": [("x/a b+c", "id&1", "CRC32C")], "IsTruncated": True},
        ),
        (b"<html></html>", None),
        (b"<html>", None),
        (uploads(b"<Upload><UploadId>1</UploadId></Upload>"), None),
    ],
)
def test_uploads_that_are_not_complete_are_read(body: bytes, expected: object) -> None:
    found = uploads_in(body)
    if found is not None:
        names = ("Key", "UploadId", "ChecksumAlgorithm")
        listed = [tuple(one[name] for name in names) for one in found["Uploads"]]
        assert {"Uploads": listed, "IsTruncated": found["IsTruncated"]} == expected
        assert found["NextKeyMarker"] == ("x/a b" if found["IsTruncated"] else "")
    else:
        assert expected is None


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, b"<DeleteResult/>", {"Errors": []}),
        (
            200,
            b'<DeleteResult xmlns="x"><Deleted><Key>b</Key></Deleted><Error><Key>a&lt;</Key>'
            b"<Code>AccessDenied</Code></Error></DeleteResult>",
            {"Errors": [{"Key": "a<", "Code": "AccessDenied"}]},
        ),
        (200, b"<Error><Code>InternalError</Code></Error>", None),
        (200, b"", None),
        (500, b"<DeleteResult/>", None),
    ],
)
def test_a_deletion_names_what_has_not_gone(status: int, body: bytes, expected: object) -> None:
    assert failures_in(Answer(status=status, body=bytearray(body))) == expected
