"""Properties of S3: parts, pages, batches, conditions, and false answers."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from holdfast.syncer.errors import (
    AlreadyStored,
    NotStored,
    StorageBusy,
    StorageError,
    StorageRefused,
    StorageUnavailable,
)
from holdfast.syncer.stores import retry
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.s3.upload import Buffers, Multipart, part_bytes
from holdfast.syncer.stores.store import ObjectInfo, Store
from tests.rig.faults.ills import Ill, Some
from tests.rig.storage.proxy import Proxy
from tests.rig.storage.s3_server import S3Server
from tests.syncer.conftest import ScriptedS3

pytestmark = pytest.mark.anyio

MIB = 1 << 20


def content(path: Path) -> bytes:
    return path.read_bytes()


def xml_error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>as told</Message></Error>".encode()


@pytest.fixture
def big(tmp_path: Path) -> Path:
    path = tmp_path / "big"
    path.write_bytes(os.urandom(20 * MIB + 17))
    return path


async def unfinished_uploads(server: S3Server, prefix: str) -> list[Any]:
    """Those of one test: other tests use the bucket, too."""
    from tests.rig.storage.s3_server import open_client

    options = Location.resolve(server.uri("bucket"), None, {}).base.options
    async with open_client(options) as client:
        found = (await client.list_multipart_uploads(Bucket="bucket")).get("Uploads", [])
        return [upload for upload in found if upload["Key"].startswith(prefix)]


@pytest.mark.server
@pytest.mark.parametrize("server_name", ["moto", "rclone"])
async def test_a_large_file_goes_in_parts_and_comes_back(
    server_name: str, big: Path, request: pytest.FixtureRequest
) -> None:
    server: S3Server = request.getfixturevalue(server_name)
    store = Location.resolve(server.uri("bucket/large"), None, {}).open_store()
    stored = await store.put("big", big)
    assert stored.size == 20 * MIB + 17
    assert server_name == "rclone" or str(stored.etag).endswith("-3")
    assert await store.get("big", big.with_name("copy")) == stored.size
    assert content(big.with_name("copy")) == content(big)
    await store.close()


@pytest.mark.server
async def test_an_upload_that_fails_is_aborted_and_invisible(
    moto: S3Server, big: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Location.resolve(moto.uri("bucket/aborted"), None, {}).open_store()
    size = len(content(big))
    monkeypatch.setattr("holdfast.syncer.stores.s3.store.source_size", lambda _: size + 8 * MIB)
    with pytest.raises(StorageUnavailable, match="became shorter"):
        await store.put("big", big)
    assert await store.list() == []
    assert await unfinished_uploads(moto, "aborted/") == []
    await store.close()


@pytest.mark.server
async def test_a_cancelled_upload_is_aborted_and_invisible(
    moto: S3Server, big: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Location.resolve(moto.uri("bucket/cancelled"), None, {}).open_store()
    begun = anyio.Event()
    complete = Multipart._complete

    async def stall(*args: Any) -> None:
        begun.set()
        await anyio.sleep_forever()
        await complete(*args)

    monkeypatch.setattr(Multipart, "_complete", stall)
    async with anyio.create_task_group() as group:
        group.start_soon(store.put, "big", big)
        await begun.wait()
        group.cancel_scope.cancel()
    assert await store.list() == []
    assert await unfinished_uploads(moto, "cancelled/") == []
    await store.close()


@pytest.mark.server
async def test_create_only_holds_for_large_files(moto: S3Server, big: Path) -> None:
    store = Location.resolve(moto.uri("bucket/large-once"), None, {}).open_store()
    await store.put("big", b"first", create_only=True)
    with pytest.raises(AlreadyStored):
        await store.put("big", big, create_only=True)
    assert await store.read("big") == b"first"
    assert await unfinished_uploads(moto, "large-once/") == []
    await store.close()


@pytest.mark.server
@pytest.mark.parametrize(("server_name", "decides"), [("moto", True), ("rclone", False)])
async def test_a_server_that_ignores_conditions_is_found_out(
    server_name: str, decides: bool, request: pytest.FixtureRequest
) -> None:
    server: S3Server = request.getfixturevalue(server_name)
    store = Location.resolve(server.uri("bucket/conditions"), None, {}).open_store()
    await store.put("x", b"1", create_only=True)
    assert store.conditional_puts is decides
    assert [entry.key for entry in await store.list()] == ["x"]
    await store.close()


@pytest.mark.server
async def test_a_bad_secret_is_refused_in_every_operation(
    rclone: S3Server, tmp_path: Path
) -> None:
    uri = rclone.uri("bucket/x", secret_key="not the secret")
    store = Location.resolve(uri, None, {}).open_store()
    operations = [
        store.put("a", b"1"),
        store.read("a"),
        store.get("a", tmp_path / "a"),
        store.list(),
        store.head("a"),
        store.delete(["a"]),
    ]
    for operation in operations:
        with pytest.raises(StorageRefused) as caught:
            await operation
        assert "secret_key" in caught.value.advice
        assert "not the secret" not in str(caught.value)
    await store.close()


@pytest.mark.server
async def test_thousands_of_objects_are_listed_and_deleted(rclone: S3Server) -> None:
    store = Location.resolve(rclone.uri("full/many"), None, {}).open_store()
    keys = [entry.key for entry in await store.list()]
    assert keys == [f"{number:04}" for number in range(2100)]
    await store.delete(keys)
    assert await store.list() == []
    await store.close()


@pytest.mark.server
async def test_objects_named_like_folders_are_not_listed(moto: S3Server) -> None:
    from tests.rig.storage.s3_server import open_client

    location = Location.resolve(moto.uri("bucket/console"), None, {})
    async with open_client(location.base.options) as client:
        await client.put_object(Bucket="bucket", Key="console/folder/", Body=b"")
    store = location.open_store()
    assert await store.list() == []
    await store.close()


async def closing(store: Store, operation: Any) -> Any:
    try:
        return await operation
    finally:
        await store.close()


async def test_success_for_an_object_that_is_not_there_is_not_believed(
    scripted: ScriptedS3,
) -> None:
    def respond(method: str, path: str, head: str, body: bytes) -> Any:
        return (404, {}, b"") if method == "HEAD" else (200, {"ETag": '"made up"'}, b"")

    store = scripted.location(respond).open_store()
    with pytest.raises(NotStored):
        await closing(store, store.put("key", b"bytes"))


async def test_another_size_in_the_store_is_not_believed(scripted: ScriptedS3) -> None:
    def respond(method: str, path: str, head: str, body: bytes) -> Any:
        return (
            (200, {"ETag": '"other"', "Content-Length": "3"}, b"")
            if method == "HEAD"
            else (
                200,
                {},
                b"",
            )
        )

    store = scripted.location(respond).open_store()
    with pytest.raises(StorageUnavailable, match="5 bytes were sent, but the store has 3"):
        await closing(store, store.put("key", b"bytes"))


def losing_the_first_answer(
    mark_of: Callable[[str], str],
) -> Callable[[str, str, str, bytes], Any]:
    """Conditional puts whose first put succeeds, but its answer is lost."""
    stored: dict[str, str] = {}

    def respond(method: str, path: str, head: str, body: bytes) -> Any:
        if method == "HEAD" and path not in stored:
            return 404, {}, b""
        if method == "HEAD":
            facts = {"x-amz-meta-holdfast-put": stored[path], "ETag": '"x"'}
            return 200, {**facts, "Content-Length": "5"}, b""
        if path in stored:
            return 412, {}, xml_error("PreconditionFailed")
        stored[path] = mark_of(head)
        return None

    return respond


def mark_in(head: str) -> str:
    found = re.search(r"(?i)x-amz-meta-holdfast-put: (\w+)", head)
    assert found, "a conditional put carries a mark"
    return found[1]


async def test_our_own_lock_is_recognised_when_its_first_answer_was_lost(
    scripted: ScriptedS3,
) -> None:
    store = scripted.location(losing_the_first_answer(mark_in)).open_store()
    await closing(store, store.put("lock", b"owner", create_only=True))
    assert store.conditional_puts


async def test_the_same_bytes_of_another_are_not_taken_for_ours(scripted: ScriptedS3) -> None:
    store = scripted.location(losing_the_first_answer(lambda _: "other")).open_store()
    with pytest.raises(AlreadyStored):
        await closing(store, store.put("lock", b"owner", create_only=True))


@pytest.mark.parametrize("answer", [501, 200])
async def test_a_server_without_conditions_falls_back_to_looking(
    scripted: ScriptedS3, answer: int
) -> None:
    stored: set[str] = set()

    def respond(method: str, path: str, head: str, body: bytes) -> Any:
        if method == "HEAD":
            facts = {"ETag": '"x"', "Content-Length": "5"}
            return (200, facts, b"") if path in stored else (404, {}, b"")
        if "if-none-match" in head.lower() and answer == 501:
            return 501, {}, xml_error("NotImplemented")
        stored.add(path)
        return 200, {}, b""

    store = scripted.location(respond).open_store()
    await store.put("key", b"bytes", create_only=True)
    with pytest.raises(AlreadyStored):
        await closing(store, store.put("key", b"other", create_only=True))
    assert not store.conditional_puts
    assert {path for _, path in scripted.requests} == {"/bucket/x/key"}, "no other is put to try"


async def test_an_answer_lost_while_trying_conditions_out_leaves_the_object_ours(
    scripted: ScriptedS3,
) -> None:
    """The object exists by then, and must be recognized as our own."""
    puts: list[str] = []

    def respond(method: str, path: str, head: str, body: bytes) -> Any:
        if method == "HEAD":
            return (200, {"Content-Length": "5"}, b"") if puts else (404, {}, b"")
        puts.append(path)
        is_stored = len(puts) == 1
        return (200, {"ETag": '"x"'}, b"") if is_stored else (500, {}, xml_error("InternalError"))

    store = scripted.location(respond).open_store()
    await closing(store, store.put("key", b"bytes", create_only=True))
    assert not store.conditional_puts


async def test_keys_that_could_not_be_deleted_are_named(scripted: ScriptedS3) -> None:
    def respond(method: str, path: str, head: str, body: bytes) -> Any:
        told = b"<Error><Key>x/kept</Key><Code>AccessDenied</Code><Message>no</Message></Error>"
        return 200, {}, b"<DeleteResult>" + told + b"</DeleteResult>"

    store = scripted.location(respond).open_store()
    with pytest.raises(StorageRefused, match="1 objects: kept: AccessDenied no"):
        await closing(store, store.delete(["gone", "kept"]))


@pytest.mark.parametrize(
    ("listed", "told"),
    [
        (b"<Contents><Key>elsewhere</Key><Size>1</Size></Contents>", "'elsewhere', which"),
        (b"<Contents><Key>x/a</Key><Size>-1</Size></Contents>", "a size of -1"),
        (b"<Contents><Key>x/a</Key></Contents>", "'Size'"),
        (b"<Contents><Size>1</Size></Contents>", "'Key'"),
    ],
)
async def test_a_listing_of_something_else_is_not_believed(
    scripted: ScriptedS3, listed: bytes, told: str
) -> None:
    answer = b"<ListBucketResult>" + listed + b"</ListBucketResult>"
    store = scripted.location(lambda *_: (200, {}, answer)).open_store()
    with pytest.raises(StorageUnavailable, match=told):
        await closing(store, store.list())


async def test_a_copy_that_is_answered_without_an_etag_is_not_believed(
    scripted: ScriptedS3,
) -> None:
    store = scripted.location(lambda *_: (200, {}, b"<CopyObjectResult/>")).open_store()
    with pytest.raises(StorageUnavailable, match="ETag"):
        await closing(store, store.copy(ObjectInfo(key="a", size=1), "b"))


async def test_a_server_without_batches_gets_single_deletions(scripted: ScriptedS3) -> None:
    def respond(method: str, path: str, head: str, body: bytes) -> Any:
        return (501, {}, xml_error("NotImplemented")) if method == "POST" else (204, {}, b"")

    store = scripted.location(respond).open_store()
    await closing(store, store.delete(["a", "b"]))
    deleted = {path for method, path in scripted.requests if method == "DELETE"}
    assert deleted == {"/bucket/x/a", "/bucket/x/b"}


async def test_a_name_that_xml_cannot_hold_is_deleted_alone(scripted: ScriptedS3) -> None:
    store = scripted.location(lambda *_: (204, {}, b"")).open_store()
    await closing(store, store.delete(["odd\x01name"]))
    assert scripted.requests == [("DELETE", "/bucket/x/odd%01name")]


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (503, "SlowDown", StorageBusy),
        (500, "InternalError", StorageUnavailable),
        (400, "RequestTimeout", StorageUnavailable),
        (400, "BadDigest", StorageUnavailable),
        (409, "ConditionalRequestConflict", StorageUnavailable),
        (403, "AccessDenied", StorageRefused),
        (400, "ExpiredToken", StorageRefused),
        (400, "AuthorizationHeaderMalformed", StorageRefused),
        (404, "NoSuchBucket", StorageRefused),
        (400, "InvalidArgument", StorageRefused),
        (404, "NoSuchKey", NotStored),
    ],
)
async def test_each_answer_has_its_error(
    scripted: ScriptedS3,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    code: str,
    kind: type[StorageError],
) -> None:
    async def at_once(_: float) -> None:
        return None

    monkeypatch.setattr("holdfast.syncer.stores.s3.client.pause", at_once)
    store = scripted.location(lambda *_: (status, {}, xml_error(code))).open_store()
    with pytest.raises(kind, match=code) as caught:
        await closing(store, store.read("key"))
    assert type(caught.value) is kind


async def test_the_budget_bounds_what_is_under_way_and_gives_back_what_was_cancelled() -> None:
    budget = Buffers(8 * MIB)
    most = current = 0
    reached = anyio.Event()

    async def use(hold: bool) -> None:
        nonlocal most, current
        async with budget.lent(1):
            current += 1
            most = max(most, current)
            try:
                if hold:
                    reached.set()
                    await anyio.sleep_forever()
                await anyio.lowlevel.checkpoint()
            finally:
                current -= 1

    async with anyio.create_task_group() as group:
        group.start_soon(use, True)
        await reached.wait()
        group.cancel_scope.cancel()
    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(use, False)
    assert most == 4


@pytest.mark.server
async def test_each_part_that_is_sent_is_progress(
    moto: S3Server, big: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One file of a large model takes longer than `sync_timeout`."""
    monkeypatch.setattr(retry, "_MOVES_EVERY_S", 0.0)
    moves: list[None] = []
    waits = retry.StorageRetry(
        timeout_s=60, where="s3://bucket", tell=print, moving=lambda: moves.append(None)
    )
    store = Location.resolve(moto.uri("bucket/moves"), None, {}).open_store()
    await waits.until_done("upload", lambda: store.put("big", big))
    await store.close()
    assert len(moves) == 3


@pytest.mark.server
async def test_an_object_that_is_too_large_for_one_copy_is_copied_in_parts(
    moto: S3Server, big: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.syncer.stores.s3.store.COPY_AT_MOST_BYTES", 8 * MIB)
    monkeypatch.setattr("holdfast.syncer.stores.s3.store.COPIED_PART_BYTES", 8 * MIB)
    store = Location.resolve(moto.uri("bucket/copied"), None, {}).open_store()
    await store.put("big", big)
    [entry] = await store.list()
    assert str((await store.copy(entry, "copy")).etag).endswith("-3")
    assert await store.read("copy") == content(big)
    await store.close()


def test_parts_grow_so_that_ten_thousand_suffice() -> None:
    assert part_bytes(20 * MIB) == 8 * MIB
    assert part_bytes(80_000 * MIB) == 8 * MIB
    assert part_bytes(80_000 * MIB + 1) == 9 * MIB
    assert part_bytes(5 << 40) * 10_000 >= 5 << 40


@pytest.mark.server
async def test_an_answer_that_does_not_come_in_time_is_asked_for_again(moto: S3Server) -> None:
    def place(seconds: str) -> Location:
        uri = f"s3://bucket/slow?endpoint_override={proxy.endpoint}&request_timeout={seconds}"
        return Location.resolve(f"{uri}&access_key=a&secret_key=b", None, {})

    plan = Some(ill=Ill.SILENCE_AFTER, at=1, times=3)
    proxy = Proxy(moto.endpoint, plan)
    store = place("0.3").open_store()
    try:
        with pytest.raises(StorageUnavailable, match=r"no answer within 0\.3 s"):
            await store.put("object", b"whole")  # three times, then given up
        assert (await store.put("object", b"whole")).size == 5
        assert await store.read("object") == b"whole"
        assert proxy.injected == {Ill.SILENCE_AFTER: 3}
    finally:
        await store.close()
        proxy.close()
