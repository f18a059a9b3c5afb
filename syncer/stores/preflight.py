"""Tests a storage: `preflight` briefly before trial 1, `probe` thoroughly before a long run.

`preflight` writes, reads, lists and deletes an object. `probe` performs and times all operations
of a run, with large objects and conditional puts. It takes seconds, and continues after a failure
to report all of them.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from holdfast.dataclass import dataclass
from holdfast.syncer.errors import AlreadyStored, StorageBusy, StorageError, StorageUnavailable
from holdfast.syncer.files.durable import unique
from holdfast.syncer.stores.store import ObjectInfo, Store, allowance_s

LARGE_BYTES = 24 << 20  # uploads to S3 from 16 MiB on have parts
_SMALL_BYTES = 4096
_SMALL = 5
# The folder of `preflight`, which removes objects that are an hour old there.
_FOLDER = ".holdfast-preflight"
_DEADLINE_S = 30.0
_PROBE_CLEANUP_S = 30.0
# The deadline for the cleanup if the storage has not answered at all.
_FUTILE_CLEANUP_S = 2.0


class ProbeOutcome(StrEnum):
    OK = "ok"
    WEAK = "weak"  # it works, but a guarantee is missing
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of the test. `seconds` is its duration, for `size_bytes`.

    `told` is the observation or the error, `meaning` the consequence for a run; "" if there is no
    problem.
    """

    name: str
    outcome: ProbeOutcome
    seconds: float = 0.0
    size_bytes: int = 0
    told: str = ""
    meaning: str = ""

    @property
    def mib_per_s(self) -> float | None:
        """The rate; None if too few bytes were transferred."""
        if self.size_bytes < 1 << 20 or not self.seconds:
            return None
        return self.size_bytes / (1 << 20) / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    told: str
    meaning: str = ""
    size_bytes: int = 0


class _Bad(StorageError):
    """The storage reported a success that is not one."""


_Attempt = Callable[[], Awaitable[_Seen]]


async def probe(
    store: Store, *, large_bytes: int = LARGE_BYTES, deadline_s: float = _DEADLINE_S
) -> list[Step]:
    """Write, write once, overwrite, list, read and delete, and leave nothing behind. Failures are
    in the steps; the storage's errors are not raised."""
    check = _Probe(store, large_bytes, deadline_s)
    try:
        return await check.run()
    finally:
        await check.clean_up()


class _Probe:
    def __init__(self, store: Store, large_bytes: int, deadline_s: float) -> None:
        self._store = store
        self._large_bytes = large_bytes
        self._deadline_s = deadline_s
        self._folder = f"{_FOLDER}/{unique()}"
        self._small = {
            f"{self._folder}/small-{n}": os.urandom(_SMALL_BYTES) for n in range(_SMALL)
        }
        self._once = f"{self._folder}/once"
        self._raced = f"{self._folder}/raced"
        self._large = f"{self._folder}/large"
        self._digest = ""
        self._has_large = False
        self._answered = False
        self._written: dict[str, int] = {}

    async def run(self) -> list[Step]:
        rest: list[tuple[str, _Attempt, str, int]] = [
            ("conditional put", self._write_once, _ONCE, 0),
            ("large object", self._write_large, _LARGE, self._large_bytes),
            ("overwrite", self._overwrite, _OVERWRITE, 0),
            ("list", self._list, _LIST, 0),
            ("read", self._read, _READ, self._large_bytes),
            ("delete", self._delete, _DELETE, 0),
        ]
        first = await self._try("write", self._write, _WRITE, 0)
        if first.outcome is ProbeOutcome.FAILED:
            return [first, *(Step(name=one[0], outcome=ProbeOutcome.SKIPPED) for one in rest)]
        return [first, *[await self._try(*one) for one in rest]]

    async def clean_up(self) -> None:
        if not self._written:
            return
        with suppress(StorageError, TimeoutError):  # the step `delete` has reported it
            async with asyncio.timeout(_PROBE_CLEANUP_S if self._answered else _FUTILE_CLEANUP_S):
                await self._store.delete(list(self._written))

    async def _try(self, name: str, attempt: _Attempt, meaning: str, size: int) -> Step:
        began = time.perf_counter()

        def step(outcome: ProbeOutcome, told: str, meaning: str, size_bytes: int = 0) -> Step:
            return Step(
                name=name,
                outcome=outcome,
                seconds=time.perf_counter() - began,
                size_bytes=size_bytes,
                told=told,
                meaning=meaning,
            )

        allowed_s = self._deadline_s + (allowance_s(size) if size else 0)
        try:
            async with asyncio.timeout(allowed_s):
                seen = await attempt()
        except TimeoutError:
            return step(ProbeOutcome.FAILED, f"no answer within {allowed_s:g} s", meaning)
        except StorageError as error:
            advice = f"{meaning} {error.advice}".strip()
            return step(ProbeOutcome.FAILED, error.cause or str(error), advice)
        outcome = ProbeOutcome.WEAK if seen.meaning else ProbeOutcome.OK
        return step(outcome, seen.told, seen.meaning, seen.size_bytes)

    async def _put(self, key: str, source: bytes | Path, *, create_only: bool = False) -> None:
        size = len(source) if isinstance(source, bytes) else self._large_bytes
        # Recorded before the put, because the object may exist even if the answer is lost.
        self._written.setdefault(key, size)
        await self._store.put(key, source, create_only=create_only)
        self._written[key] = size
        self._answered = True

    async def _write(self) -> _Seen:
        times = []
        for key, data in self._small.items():
            began = time.perf_counter()
            await self._put(key, data)
            times.append(time.perf_counter() - began)
        each_ms = 1000 * sorted(times)[len(times) // 2]
        return _Seen(told=f"{_SMALL} objects of {_SMALL_BYTES} bytes, {each_ms:.0f} ms each")

    async def _write_once(self) -> _Seen:
        """Check that the second of two puts is refused, and all but one of several simultaneous
        puts."""
        await self._put(self._once, b"first", create_only=True)
        with suppress(AlreadyStored):
            await self._put(self._once, b"second", create_only=True)
            raise _Bad("put", self._once, "a create-only put replaced an existing object")
        if await self._store.read(self._once) != b"first":
            raise _Bad("put", self._once, "a refused put replaced the object anyway")
        if not self._store.conditional_puts:
            return _Seen(told="the storage has no conditional puts", meaning=_CONTESTABLE)
        won = await asyncio.gather(*(self._wins(b"%d" % n) for n in range(4)))
        if sum(won) != 1:
            raise _Bad("put", self._raced, f"{sum(won)} of 4 simultaneous puts succeeded")
        return _Seen(told="1 of 4 simultaneous puts succeeds")

    async def _wins(self, data: bytes) -> bool:
        try:
            await self._put(self._raced, data, create_only=True)
        except AlreadyStored:
            return False
        return True

    async def _write_large(self) -> _Seen:
        with tempfile.TemporaryDirectory(prefix="holdfast-preflight-") as folder:
            path = Path(folder) / "large"
            self._digest = await asyncio.to_thread(_fill, path, self._large_bytes)
            await self._put(self._large, path)
        found = await self._store.head(self._large)
        if found is None or found.size != self._large_bytes:
            has = "nothing" if found is None else f"{found.size} bytes"
            raise _Bad("put", self._large, f"the storage has confirmed it, but has {has}")
        self._has_large = True
        return _Seen(told=f"{self._large_bytes / 1e6:.1f} MB", size_bytes=self._large_bytes)

    async def _overwrite(self) -> _Seen:
        key = next(iter(self._small))
        for _ in range(3):
            newer = os.urandom(_SMALL_BYTES)
            await self._put(key, newer)
            self._small[key] = newer
            if await self._store.read(key) != self._small[key]:
                raise _Bad("read", key, "a read after an overwrite returned the old bytes")
        return _Seen(told="a read returns the newest bytes")

    async def _list(self) -> _Seen:
        listed = {e.key: e.size for e in await self._store.list(self._folder)}
        missing = [key for key in self._confirmed_keys() if key not in listed]
        if missing:
            raise _Bad("list", self._folder, f"{len(missing)} objects are not in the listing")
        return _Seen(told=f"{len(listed)} objects, all listed at once")

    def _confirmed_keys(self) -> list[str]:
        return [*self._small, *([self._large] if self._has_large else [])]

    async def _read(self) -> _Seen:
        for key, data in self._small.items():
            if await self._store.read(key) != data:
                raise _Bad("read", key, "it does not return the written bytes")
        if not self._has_large:
            return _Seen(told="small objects")
        with tempfile.TemporaryDirectory(prefix="holdfast-preflight-") as folder:
            size = await self._store.get(self._large, Path(folder) / "large")
            if await asyncio.to_thread(_digest, Path(folder) / "large") != self._digest:
                raise _Bad("get", self._large, "it does not return the written bytes")
        return _Seen(told="the same bytes", size_bytes=size)

    async def _delete(self) -> _Seen:
        keys = list(self._written)
        await self._store.delete(keys)
        if left := await self._store.list(self._folder):
            raise _Bad("delete", self._folder, f"{len(left)} objects still exist")
        self._written.clear()
        return _Seen(told=f"{len(keys)} objects")


def _fill(path: Path, size: int) -> str:
    """Fill a file with random bytes, which no storage can compress; return their checksum."""
    digest = hashlib.sha256()
    with path.open("wb") as file:
        while left := size - file.tell():
            data = os.urandom(min(left, 1 << 20))
            digest.update(data)
            file.write(data)
    return digest.hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_WRITE = "No run can store anything here."
_ONCE = (
    "Two simultaneous restores of one experiment on two machines would not notice each other, and "
    "each manifest is written with such a put."
)
_CONTESTABLE = (
    "Two simultaneous restores of one experiment on two machines may both continue: make sure "
    "that there is only one."
)
_LARGE = (
    "Checkpoints with a file of 16 MiB or more cannot be stored. If small objects can be "
    "written, check the permissions for multipart uploads (s3:PutObject, s3:AbortMultipartUpload, "
    "s3:ListMultipartUploadParts), and proxies that limit the size of a request."
)
_OVERWRITE = "Each publication replaces the experiment's head: a restore would get an older state."
_LIST = "An upload counts only when a listing shows it: checkpoints would never be committed."
_READ = "Nothing can be restored from here."
_DELETE = (
    "Superseded checkpoints stay (num_to_keep has no effect here), and so do the objects that "
    f"this test wrote in {_FOLDER}."
)


R = TypeVar("R")

DEADLINE_S = 10.0
_CLEANUP_S = 2.0
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 10.0
# A probe that is this much older than this run's, by the store's clock, was abandoned.
_ABANDONED_S = 3600.0
_UNREACHABLE = (
    "Check that the storage can be reached from this machine, "
    "and its endpoint_override, port and scheme"
)
_UNUSABLE = "Choose a storage_path where this user may write, read, list and delete"


async def preflight(
    store: Store, public_name: str, *, deadline_s: float = DEADLINE_S, owner: str = ""
) -> None:
    """Write, read, list and delete a small object with a unique name in a folder for probes.

    Also deletes the probes that other runs left more than an hour ago, and all earlier probes of
    the same `owner`, a name that only one process uses at a time. Returns if each of these
    operations succeeds within `deadline_s`. Raises StorageError: `operation` is the one that
    failed, and `where` is `public_name`.
    """
    folder = f"{_FOLDER}/{owner}" if owner else _FOLDER
    key, written, tried = f"{folder}/{unique()}", unique().encode(), "write to"
    try:
        await asyncio.wait_for(store.put(key, written), deadline_s)
        tried = "read from"
        if await asyncio.wait_for(store.read(key), deadline_s) != written:
            raise StorageUnavailable("read", key, "it does not return the written bytes")
        tried = "list"
        listed = await asyncio.wait_for(store.list(_FOLDER, leftovers=True), deadline_s)
        ours = next((entry for entry in listed if entry.key == key), None)
        if ours is None:
            raise StorageUnavailable("list", key, "the listing lacks the written object")
        tried = "delete from"
        await asyncio.wait_for(store.delete([key]), deadline_s)
    except TimeoutError as error:
        cause = f"no answer within {deadline_s:g} s"
        raise StorageUnavailable(tried, public_name, cause, _UNREACHABLE) from error
    except StorageError as error:
        if tried != "write to":
            with suppress(StorageError, TimeoutError):  # the first failure is reported
                await asyncio.wait_for(store.delete([key]), _CLEANUP_S)
        told = error.during(tried, public_name)
        unreachable = isinstance(told, StorageUnavailable)
        told.advice = told.advice or (_UNREACHABLE if unreachable else _UNUSABLE)
        raise told from error
    if abandoned := _abandoned(listed, ours, f"{folder}/" if owner else None):
        with suppress(StorageError, TimeoutError):  # they may be another user's, and do no harm
            await asyncio.wait_for(store.delete(abandoned), deadline_s)


def _abandoned(listed: Sequence[ObjectInfo], ours: ObjectInfo, own: str | None) -> list[str]:
    """The keys of abandoned probes: old ones, and all in the folder `own`."""
    others = [entry for entry in listed if entry.key != ours.key]
    found = {entry.key for entry in others if own is not None and entry.key.startswith(own)}
    if ours.modified is not None:
        long_ago = ours.modified - _ABANDONED_S
        found |= {entry.key for entry in others if (entry.modified or long_ago) < long_ago}
    return sorted(found)


def when_ready(
    perform: Callable[[], R], public_name: str, *, timeout_s: float, tell: Callable[[str], None]
) -> R:
    """Call `perform`, and retry for `timeout_s` while the storage is overloaded. For callers
    without a loop. `tell` is called once with a message about that."""
    until, pause_s = time.monotonic() + timeout_s, _FIRST_PAUSE_S
    while True:
        try:
            return perform()
        except StorageBusy as error:
            if time.monotonic() + pause_s > until:
                raise
            if pause_s == _FIRST_PAUSE_S:
                tell(
                    f"cannot {error.operation} {public_name}: {error.cause}. Waiting for it, "
                    f"{timeout_s:g} s at most"
                )
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
