"""Probing a storage: what works and how fast, what does not, and the consequences for a run."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from holdfast.syncer.errors import AlreadyStored, StorageRefused
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.preflight import ProbeOutcome, Step, probe
from holdfast.syncer.stores.store import ObjectInfo, PutResult
from tests.rig.storage.s3_server import S3Server
from tests.rig.storage.stores import Fault, FaultyStore, MemoryStore
from tests.syncer.conftest import Distant

pytestmark = pytest.mark.anyio

MIB = 1 << 20
STEPS = ["write", "conditional put", "large object", "overwrite", "list", "read", "delete"]


def by_name(steps: list[Step]) -> dict[str, Step]:
    assert [step.name for step in steps] == STEPS
    return {step.name: step for step in steps}


async def tried(location: Location, size: int = 17 * MIB) -> dict[str, Step]:
    """17 MiB: a multipart upload, if the storage has them."""
    store = location.open_store()
    try:
        steps = by_name(await probe(store, large_bytes=size))
        assert await store.list("", leftovers=True) == []
    finally:
        await store.close()
    return steps


async def test_a_good_place_passes_is_timed_and_nothing_stays(tmp_path: Path) -> None:
    steps = await tried(Location.resolve(tmp_path, None, {}))
    assert {step.outcome for step in steps.values()} == {ProbeOutcome.OK}
    assert not any(step.meaning for step in steps.values())
    assert steps["large object"].size_bytes == steps["read"].size_bytes == 17 * MIB
    assert all(step.seconds > 0 for step in steps.values())
    assert (steps["read"].mib_per_s or 0) > 0
    assert os.listdir(tmp_path) == []


@pytest.mark.server
async def test_a_bucket_that_decides_who_is_first_passes(moto: S3Server) -> None:
    steps = await tried(Location.resolve(moto.uri("bucket/probing"), None, {}))
    assert {step.outcome for step in steps.values()} == {ProbeOutcome.OK}


@pytest.mark.server
async def test_one_that_ignores_conditions_is_weak_and_what_that_means_is_reported(
    rclone: S3Server, distant: Distant
) -> None:
    for location in (Location.resolve(rclone.uri("bucket/probing"), None, {}), distant.location):
        steps = await tried(location, MIB)
        assert steps.pop("conditional put").outcome is ProbeOutcome.WEAK
        assert {step.outcome for step in steps.values()} == {ProbeOutcome.OK}


@pytest.mark.server
async def test_a_refused_secret_skips_the_rest(rclone: S3Server) -> None:
    steps = await tried_at(Location.resolve(rclone.uri("bucket/x", secret_key="no"), None, {}))
    assert steps["write"].outcome is ProbeOutcome.FAILED
    assert "secret_key" in steps["write"].meaning
    assert {steps[name].outcome for name in STEPS[1:]} == {ProbeOutcome.SKIPPED}


async def tried_at(location: Location, size: int = MIB) -> dict[str, Step]:
    store = location.open_store()
    try:
        return by_name(await probe(store, large_bytes=size))
    finally:
        await store.close()


def answer(
    kept: dict[str, bytes], method: str, name: str, query: str, head: str, body: bytes
) -> tuple[int, dict[str, str], bytes]:
    """A small S3: conditional put, get, head, list and delete."""
    import hashlib

    match method:
        case "PUT":
            if "if-none-match" in head.lower() and name in kept:
                return 412, {}, b"<Error><Code>PreconditionFailed</Code></Error>"
            kept[name] = body
            return 200, {"ETag": f'"{hashlib.md5(body).hexdigest()}"'}, b""
        case "GET" if "list-type" in query:
            items = "".join(
                f"<Contents><Key>{key.removeprefix('/bucket/')}</Key><Size>{len(data)}</Size>"
                f"<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
                for key, data in sorted(kept.items())
            )
            return 200, {}, f"<ListBucketResult>{items}</ListBucketResult>".encode()
        case "GET" if name in kept:
            return 200, {}, kept[name]
        case "HEAD" if name in kept:
            return 200, {"Content-Length": str(len(kept[name]))}, b""
        case "POST" if "uploads" in query:
            told = b"<InitiateMultipartUploadResult><UploadId>1</UploadId>"
            return 200, {}, told + b"</InitiateMultipartUploadResult>"
        case "POST" if "delete" in query:
            for key in re.findall(rb"<Key>(.*?)</Key>", body):
                kept.pop(f"/bucket/{key.decode()}", None)
            return 200, {}, b"<DeleteResult></DeleteResult>"
        case "DELETE":
            kept.pop(name, None)
            return 204, {}, b""
        case _:
            return 404, {}, b"<Error><Code>NoSuchKey</Code></Error>"


@pytest.mark.parametrize("at", range(1, 22))
async def test_whatever_fails_is_reported_in_its_step_and_nothing_stays(at: int) -> None:
    inner = MemoryStore()
    refusal = StorageRefused("x", "y", "AccessDenied", "Ask for the right")
    steps = by_name(await probe(FaultyStore(inner, at=at, error=refusal), large_bytes=MIB))
    failed = [step for step in steps.values() if step.outcome is ProbeOutcome.FAILED]
    assert [step.told for step in failed] == ["AccessDenied"]
    assert "Ask for the right" in failed[0].meaning
    assert inner.objects == {}


class Overwriting(MemoryStore):
    async def put(self, key: str, source: bytes | Path, **how: bool) -> PutResult:
        return await super().put(key, source)


class Racing(MemoryStore):
    """Checks first and then puts, and claims to decide atomically."""

    async def put(self, key: str, source: bytes | Path, **how: bool) -> PutResult:
        if how.get("create_only") and await self.head(key) is not None:
            raise AlreadyStored("put", key)
        await asyncio.sleep(0)
        return await super().put(key, source)


class Forgetful(MemoryStore):
    async def list(self, prefix: str = "", *, leftovers: bool = False) -> list[ObjectInfo]:
        return (await super().list(prefix))[:-1]


class Garbling(MemoryStore):
    async def get(self, key: str, target: Path) -> int:
        size = await super().get(key, target)
        spoil(target, size)
        return size


class Keeping(MemoryStore):
    async def delete(self, keys: Iterable[str]) -> None:
        """Answers every put with success."""


class Stale(MemoryStore):
    """Always returns the first version of an object."""

    def __init__(self) -> None:
        super().__init__()
        self.first: dict[str, bytes] = {}

    async def read(self, key: str) -> bytes:
        return self.first.setdefault(key, await super().read(key))


class Pretending(MemoryStore):
    async def put(self, key: str, source: bytes | Path, **how: bool) -> PutResult:
        if isinstance(source, Path):
            return PutResult(size=MIB)
        return await super().put(key, source, **how)


def spoil(path: Path, size: int) -> None:
    path.write_bytes(bytes(size))


LIARS = [
    (Overwriting, "conditional put", "replaced an existing object"),
    (Racing, "conditional put", "4 of 4 simultaneous puts succeeded"),
    (Forgetful, "list", "1 objects are not in the listing"),
    (Garbling, "read", "does not return the written bytes"),
    (Keeping, "delete", "objects still exist"),
    (Stale, "overwrite", "returned the old bytes"),
    (Pretending, "large object", "has confirmed it, but has nothing"),
]


@pytest.mark.parametrize(("kind", "step", "told"), LIARS)
async def test_a_store_that_says_what_is_not_so_is_found_out(
    kind: type[MemoryStore], step: str, told: str
) -> None:
    steps = by_name(await probe(kind(), large_bytes=MIB))
    assert steps[step].outcome is ProbeOutcome.FAILED
    assert told in steps[step].told
    assert steps[step].meaning


async def test_a_step_that_stalls_is_given_up_and_the_others_are_tried() -> None:
    store = FaultyStore(MemoryStore(), at=6, fault=Fault.STALL)
    steps = by_name(await probe(store, large_bytes=MIB, deadline_s=1))
    assert steps["conditional put"].told == "no answer within 1 s"
    assert steps["delete"].outcome is ProbeOutcome.OK
