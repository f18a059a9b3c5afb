"""Answers of S3: read as botocore reads them; and listings without an end."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

import crc32c
import pytest

from holdfast.syncer.errors import StorageUnavailable
from holdfast.syncer.stores.s3 import answers
from holdfast.syncer.stores.s3.answers import (
    EndlessListing,
    OddAnswer,
    Page,
    Unfinished,
    failures_in,
    listed,
    objects_in,
    uploads_in,
)
from holdfast.syncer.stores.s3.http import Answer
from holdfast.syncer.stores.store import ObjectInfo
from tests.syncer.conftest import ScriptedS3

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


def answered(body: bytes) -> Answer:
    return Answer(status=200, body=bytearray(body))


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
    ours, theirs = objects_in(answered(body)), by_botocore(body)
    assert [*ours.entries.values()] == [
        ObjectInfo(
            key=one["Key"],
            size=one["Size"],
            etag=one["ETag"].strip('"'),
            modified=one["LastModified"].timestamp(),
        )
        for one in theirs.get("Contents", [])
    ]
    token = theirs.get("NextContinuationToken")
    assert ours.following == ({"continuation-token": token} if theirs["IsTruncated"] else None)


def test_keys_that_are_not_encoded_stay_as_they_are() -> None:
    found = objects_in(answered(page(b"<IsTruncated>false</IsTruncated>" + FIRST, namespace=b"")))
    assert list(found.entries) == ["x/a+b%2Bc"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"<Error><Code>SlowDown</Code></Error>",
        page(HEAD + FIRST.replace(b"<Size>5", b"<Size>five")),
    ],
)
def test_what_is_not_a_page_is_odd(body: bytes) -> None:
    with pytest.raises(OddAnswer):
        objects_in(answered(body))


def crc(body: bytes) -> str:
    return base64.b64encode(crc32c.crc32c(body).to_bytes(4, "big")).decode()


@pytest.mark.anyio
async def test_listings_and_reads_say_what_the_server_says(scripted: ScriptedS3) -> None:
    def respond(method: str, path: str, head: str, body: bytes) -> Any:
        if method == "HEAD":
            return 200, {"Content-Length": "5", "ETag": '"e"', "Last-Modified": MOMENT}, b""
        if "list-type=2" in path:
            return 200, {}, page(b"<IsTruncated>false</IsTruncated>" + FIRST)
        return 200, {}, b"bytes"

    store = scripted.location(respond).open_store()
    assert [entry.key for entry in await store.list()] == ["a+b%2Bc"]
    assert await store.read("key") == b"bytes"
    found = await store.head("key")
    assert found == ObjectInfo(key="key", size=5, etag="e", modified=1795741323.0)
    await store.close()


@pytest.mark.anyio
async def test_an_object_is_missing_only_if_the_server_says_so(scripted: ScriptedS3) -> None:
    def respond(method: str, path: str, head: str, body: bytes) -> Any:
        if method == "PUT":
            return 200, {"ETag": '"e"', "x-amz-checksum-crc32c": crc(body)}, b""
        return (404, {}, b"") if "none" in path else (200, {"Content-Length": "?"}, b"")

    store = scripted.location(respond).open_store()
    await store.put("key", b"bytes")
    assert await store.head("none") is None
    with pytest.raises(StorageUnavailable, match="the answer is not HTTP"):
        await store.head("key")
    await store.put("key", b"bytes")
    await store.close()


UPLOAD = (
    b"<Upload><Key>x/a+b%2Bc</Key><UploadId>id&amp;1</UploadId>"
    b"<ChecksumAlgorithm>CRC32C</ChecksumAlgorithm></Upload>"
)


def uploads(content: bytes) -> bytes:
    name = b"ListMultipartUploadsResult"
    return b"<" + name + b">" + content + b"</" + name + b">"


@pytest.mark.parametrize(
    ("body", "names", "following"),
    [
        (uploads(b""), [], None),
        (uploads(UPLOAD), ["x/a+b%2Bc"], None),
        (
            uploads(HEAD + b"<NextKeyMarker>x/a+b</NextKeyMarker>" + UPLOAD),
            ["x/a b+c"],
            {"key-marker": "x/a b"},
        ),
    ],
)
def test_uploads_that_are_not_complete_are_read(
    body: bytes, names: list[str], following: object
) -> None:
    found = uploads_in(answered(body))
    assert [*found.entries.values()] == [
        Unfinished(name=name, upload_id="id&1", is_summed=True) for name in names
    ]
    assert found.following == following


@pytest.mark.parametrize("read", [uploads_in, failures_in])
@pytest.mark.parametrize("body", [b"<html></html>", b"<html>", b""])
def test_an_answer_of_another_kind_is_odd(read: Callable[[Answer], Any], body: bytes) -> None:
    with pytest.raises(OddAnswer):
        read(answered(body))


def test_a_deletion_names_what_has_not_gone() -> None:
    assert failures_in(answered(b"<DeleteResult/>")) == {}
    left = (
        b'<DeleteResult xmlns="x"><Deleted><Key>b</Key></Deleted><Error><Key>a&lt;</Key>'
        b"<Code>AccessDenied</Code></Error></DeleteResult>"
    )
    [(name, error)] = failures_in(answered(left)).items()
    assert (name, error.cause) == ("a<", "AccessDenied")


Answers = Callable[[int], Page[str]]


def listing(*keys: str, token: str | None = None) -> Page[str]:
    following = {} if token is None else {"continuation-token": token}
    return Page(entries={key: key for key in keys}, following=following)


class Server:
    """Answers the request number n with `answer(n)`."""

    def __init__(self, answer: Answers) -> None:
        self._answer = answer
        self.asked: list[Mapping[str, str]] = []

    async def __call__(self, following: Mapping[str, str]) -> Page[str]:
        self.asked.append(following)
        return self._answer(len(self.asked))


@pytest.mark.parametrize(
    ("answer", "told", "requests"),
    [
        (lambda n: listing("a", token="t"), "continuation token", 4),
        (lambda n: listing(f"a{n}", token="t"), "continuation token", 4),
        (lambda n: listing(f"a{n}", token=f"t{n % 3}"), "continuation token", 8),
        (lambda n: listing("a", token=f"t{n}"), "nothing new", 44),
        (lambda n: listing(token=f"t{n}"), "nothing new", 42),
        (lambda n: listing(f"a{n}"), "has no continuation token", 2),
        (lambda n: listing(*map(str, range(101)), token=f"t{n}"), "a page has 101", 2),
        (lambda n: listing(*(f"{n}/{k}" for k in range(100)), token=f"t{n}"), "more than 500", 12),
    ],
)
@pytest.mark.anyio
async def test_a_listing_without_an_end_is_an_error_after_a_few_requests(
    answer: Answers, told: str, requests: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "MOST_ON_A_PAGE", 100)
    monkeypatch.setattr(answers, "MOST_IN_ALL", 500)
    server = Server(answer)
    with pytest.raises(EndlessListing, match=told):
        await listed(server)
    assert len(server.asked) == requests


@pytest.mark.anyio
async def test_a_listing_that_drips_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "_FIRST_S", -1.0)
    with pytest.raises(EndlessListing, match="1 entries took"):
        await listed(Server(lambda n: listing(f"a{n}", token=f"t{n}")))


@pytest.mark.anyio
async def test_a_listing_that_repeats_itself_once_is_asked_for_again() -> None:
    def answer(n: int) -> Page[str]:
        return listing("a", token="t") if n < 3 else Page(entries={"a": "a"})

    assert await listed(Server(answer)) == ["a"]


@pytest.mark.anyio
async def test_pages_follow_each_other_also_empty_ones() -> None:
    def answer(n: int) -> Page[str]:
        if n == 50:
            return Page(entries={})
        return listing(*([f"a{n}"] if n % 10 == 0 else []), token=f"t{n}")

    server = Server(answer)
    found = await listed(server)
    assert found == ["a10", "a20", "a30", "a40"]
    assert server.asked[:2] == [{}, {"continuation-token": "t1"}]
