"""The keeper: hashes, syncs, uploads and removes, behind every report.

A checkpoint is committed when its manifest is: every other byte of it is then on the disk and,
where storage is elsewhere, confirmed by it. `publish` makes a consistent set visible there: sealed
journal segments first, small files, then one object, the head, that names the set.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import zlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from holdfast.syncer import manifest
from holdfast.syncer.durable import remove_tree
from holdfast.syncer.errors import (
    AlreadyStored,
    ManifestMismatch,
    NotStored,
    StorageError,
    StorageUnavailable,
)
from holdfast.syncer.journal import segment_name
from holdfast.syncer.location import Location
from holdfast.syncer.store import Store
from holdfast.syncer.tree import MANIFEST_NAME

T = TypeVar("T")

_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What the keeper must know. `storage` is None where the local tree is the storage.

    `is_record(path)` says which small files are persisted always, `artifacts` adds all others.
    Neither `private` names nor checkpoints (names with `checkpoint_prefix`) are uploaded as files.
    `epoch` is what an earlier keeper of this same incarnation has claimed, "" where none has.
    """

    root: Path
    storage: Location | None
    experiment_id: str
    journal: str
    head: str
    is_record: Callable[[str], bool]
    checkpoint_prefix: str
    private: tuple[str, ...] = ()
    artifacts: bool = False
    parallel: int = 8
    timeout_s: float = 1800.0
    epoch: str = ""


@dataclass(slots=True)
class _Progress:
    """What has reached the storage already."""

    files: dict[str, tuple[int, int]] = field(default_factory=dict)
    segments: dict[int, dict[str, Any]] = field(default_factory=dict)


class Keeper:
    """Performs orders; each method is one of them."""

    def __init__(self, orders: Orders, tell: Callable[[list[Any]], None]) -> None:
        self._orders = orders
        self._tell = tell
        self._store: Store | None = orders.storage.open_store() if orders.storage else None
        self._slots = asyncio.Semaphore(orders.parallel)
        self._progress = _Progress()
        self._epoch = orders.epoch
        self._owned_at = -_OWNED_S
        self._published: dict[str, tuple[int, int]] = {}
        self._doomed: list[str] = []
        self.unfinished: dict[str, str] = {}

    @property
    def where(self) -> str:
        return self._orders.storage.public if self._orders.storage else str(self._orders.root)

    async def open(self) -> str:
        """Claim the next epoch in storage, and return it: the newest incarnation owns it."""
        if self._store is not None:
            if not self._epoch:
                await self._retried("claim the storage", self._claim)
            await self._retried("read the head", self._look_at_head)
        return self._epoch

    async def _look_at_head(self) -> None:
        """What an earlier incarnation has published need not travel again."""
        assert self._store is not None
        try:
            head = json.loads(await self._store.read(self._orders.head))
        except (NotStored, ValueError):
            return
        if head.get("experiment_id") == self._orders.experiment_id:
            self._published = {s["name"]: (s["size"], s["crc32"]) for s in head["segments"]}

    async def _claim(self) -> None:
        assert self._store is not None
        names = [entry.key.rpartition("/")[2] for entry in await self._store.list(_EPOCHS)]
        number = max((int(name) for name in names if name.isdecimal()), default=0) + 1
        self._epoch = _epoch_key(number)
        try:
            await self._store.put(
                self._epoch, self._orders.experiment_id.encode(), create_only=True
            )
        except AlreadyStored as error:
            raise Usurped(
                "claim", self.where, "another restore of this experiment was a moment faster"
            ) from error

    async def _own(self, *, at_once: bool = False) -> None:
        """Raise Usurped if a newer incarnation has claimed the storage; looks once a second.

        Raises StorageUnavailable where our own claim is gone: nothing may be concluded from, or
        written to, an empty mount point.
        """
        now = asyncio.get_running_loop().time()
        if self._store is None or (now - self._owned_at < _OWNED_S and not at_once):
            return
        taken = [entry.key for entry in await self._store.list(_EPOCHS)]
        newest = max((key for key in taken if key.rpartition("/")[2].isdecimal()), default="")
        if newest > self._epoch:
            raise Usurped("write", self.where, "a newer restore of this experiment has taken over")
        if self._epoch not in taken:
            cause = f"it does not hold {self._epoch}, this run's claim, any more"
            raise StorageUnavailable("write", self.where, cause, "Is it still mounted?")
        self._owned_at = now

    async def commit(self, trial_id: str, index: int, folder: str) -> None:
        """Make a staged checkpoint durable here, complete there, and say so.

        Where it is gone here, as after a move to another machine, it may be complete there.
        """
        directory = self._orders.root / folder
        if not directory.exists():
            try:
                await self._retried(f"look for {folder}", lambda: self._look_for(folder))
            except (NotStored, ManifestMismatch) as error:
                self._tell(["lost", trial_id, index, f"{directory} is gone, and {error}"])
            else:
                self._tell(["committed", trial_id, index])
            return
        written = await self._retried(
            f"commit {folder}", lambda: asyncio.to_thread(manifest.write, directory)
        )
        if self._store is not None:
            await self._retried(f"upload {folder}", lambda: self._upload(folder, written))
        self._tell(["committed", trial_id, index])

    async def _look_for(self, folder: str) -> None:
        """Raise NotStored or ManifestMismatch unless the checkpoint is complete in storage."""
        found = await self._listed(folder)
        assert self._store is not None
        data = await self._store.read(f"{folder}/{MANIFEST_NAME}")
        sizes = {key.removeprefix(f"{folder}/"): size for key, size in found.items()}
        if problems := manifest.Manifest.from_bytes(data, folder).differences(sizes):
            raise ManifestMismatch(folder, problems)

    async def _listed(self, folder: str) -> dict[str, int]:
        """The keys of a committed checkpoint in storage with their sizes. Raises NotStored."""
        if self._store is None:
            raise NotStored("find", folder, "there is no other storage to have it from")
        found = {entry.key: entry.size for entry in await self._store.list(folder)}
        if f"{folder}/{MANIFEST_NAME}" not in found:
            await self._own(at_once=True)
            raise NotStored("find", folder, "its manifest is not there: it was never committed")
        return found

    async def _upload(self, folder: str, written: manifest.Manifest) -> None:
        """All files, then the manifest. What another incarnation left there goes first."""
        store = self._store
        assert store is not None
        marker = f"{folder}/{MANIFEST_NAME}"
        await self._own()
        present = {entry.key for entry in await store.list(folder)}
        if marker in present:
            if await store.read(marker) == written.to_bytes():
                return
            await self._delete([marker])
        await self._delete(sorted(present - {marker}))
        async with asyncio.TaskGroup() as tasks:
            for name in written.files:
                tasks.create_task(self._put(f"{folder}/{name}"))
        await self._own(at_once=True)
        try:
            await store.put(marker, written.to_bytes(), create_only=True)
        except AlreadyStored as error:
            # A newer incarnation's, one that an older put while we uploaded, or our own where the
            # answer was lost.
            await self._own(at_once=True)
            if await store.read(marker) != written.to_bytes():
                cause = "another incarnation has put its own there meanwhile"
                raise StorageUnavailable("upload", folder, cause) from error

    async def _delete(self, keys: Sequence[str]) -> None:
        """Looks once more who owns it: since the listing we may have been held up for long."""
        assert self._store is not None
        if keys:
            await self._own(at_once=True)
            await self._store.delete(keys)

    async def _put(self, key: str) -> None:
        assert self._store is not None
        async with self._slots:
            await self._own()
            await self._store.put(key, self._orders.root / key)

    def doom(self, folders: Sequence[str]) -> None:
        """From storage they go once a head that names them no more is published."""
        if self._store is not None:
            self._doomed += folders

    def condemned(self) -> tuple[str, ...]:
        """Take what was doomed by now: what a publication that is ordered now does not name."""
        doomed, self._doomed = tuple(self._doomed), []
        return doomed

    async def discard(self, folders: list[str]) -> None:
        """Remove superseded checkpoints; one that is gone already is fine."""
        await asyncio.to_thread(self._remove_local, folders)

    def _remove_local(self, folders: list[str]) -> None:
        for folder in folders:
            remove_tree(self._orders.root / folder)

    async def fetch(self, folder: str) -> None:
        """Bring a checkpoint from storage to the local tree, whole.

        Raises NotStored or ManifestMismatch where it is lost, another StorageError where storage
        does not give it.
        """
        await self._retried(f"fetch {folder}", lambda: self._fetch(folder))

    async def _fetch(self, folder: str) -> None:
        keys = await self._listed(folder)
        target = self._orders.root / folder
        partial = target.with_name(f".fetch-{target.name}")
        await asyncio.to_thread(remove_tree, partial)
        async with asyncio.TaskGroup() as tasks:
            for key in keys:
                tasks.create_task(self._get(key, partial / key.removeprefix(f"{folder}/")))
        await asyncio.to_thread(manifest.verify, partial, deep=True)
        await asyncio.to_thread(remove_tree, target)
        partial.rename(target)

    async def _get(self, key: str, target: Path) -> None:
        assert self._store is not None
        async with self._slots:
            target.parent.mkdir(parents=True, exist_ok=True)
            await self._store.get(key, target)

    async def publish(self, sealed: int, begins: int, doomed: Sequence[str] = ()) -> None:
        """Make everything up to journal segment `sealed` visible in storage.

        `begins` is the segment in which this experiment begins; the records up to `sealed` name
        the `doomed` folders no more. Raises StorageError.
        """
        if self._store is None:
            return
        for number in range(begins, sealed + 1):
            if number not in self._progress.segments:
                await self._publish_segment(number)
        await self._publish_files()
        await self._retried("publish the head", lambda: self._publish_head(begins, sealed))
        for above in sorted({folder.rpartition("/")[0] for folder in doomed}):
            gone = {folder for folder in doomed if folder.startswith(f"{above}/")}
            await self._retried(f"remove from {above}", partial(self._remove, above, gone))
        self._tell(["published", sealed])

    async def _publish_segment(self, number: int) -> None:
        assert self._store is not None
        key = f"{self._orders.journal}/{segment_name(number)}"
        data = await asyncio.to_thread((self._orders.root / key).read_bytes)
        name, size, crc32 = segment_name(number), len(data), zlib.crc32(data)
        if self._published.get(name) != (size, crc32):
            await self._retried(f"upload {key}", lambda: self._put_segment(key, data))
        self._progress.segments[number] = {"name": name, "size": size, "crc32": crc32}

    async def _put_segment(self, key: str, data: bytes) -> None:
        """Never over one that a newer incarnation has put there: it may be named by its head."""
        assert self._store is not None
        await self._own()
        try:
            await self._store.put(key, data, create_only=True)
        except AlreadyStored:
            await self._own(at_once=True)
            await self._store.put(key, data)

    async def _publish_files(self) -> None:
        found = await asyncio.to_thread(self._changed_files)
        async with asyncio.TaskGroup() as tasks:
            for key in found:
                tasks.create_task(self._publish_file(key))

    async def _publish_file(self, key: str) -> None:
        path = self._orders.root / key
        try:
            stat = path.stat()
            await self._retried(f"upload {key}", lambda: self._put(key))
        except (FileNotFoundError, NotStored):
            # Deleted by the user meanwhile; there is nothing to keep.
            return
        self._progress.files[key] = (stat.st_size, stat.st_mtime_ns)

    def _changed_files(self) -> list[str]:
        orders = self._orders
        changed = []
        for path in _walk(orders.root, orders.private, orders.checkpoint_prefix):
            key = path.relative_to(orders.root).as_posix()
            if not (orders.artifacts or orders.is_record(key)):
                continue
            try:
                stat = path.stat()
            except FileNotFoundError:
                continue
            known = self._progress.files.get(key)
            if known != (stat.st_size, stat.st_mtime_ns):
                changed.append(key)
        return changed

    async def _publish_head(self, begins: int, sealed: int) -> None:
        store, orders = self._store, self._orders
        assert store is not None
        await self._own(at_once=True)
        head = {
            "format": 1,
            "experiment_id": orders.experiment_id,
            "epoch": self._epoch,
            "segments": [self._progress.segments[n] for n in range(begins, sealed + 1)],
        }
        await store.put(orders.head, json.dumps(head, indent=1).encode())

    async def _remove(self, above: str, folders: set[str]) -> None:
        """The manifests go first, so that no reader takes the rest for checkpoints.

        One listing serves all folders of a trial: a restore asks for every one that ever was.
        """
        assert self._store is not None
        start = len(above) + 1
        found = [
            entry.key
            for entry in await self._store.list(above)
            if entry.key[: entry.key.find("/", start)] in folders
        ]
        markers = [key for key in found if key.endswith(f"/{MANIFEST_NAME}")]
        await self._delete(markers)
        await self._delete([key for key in found if key not in markers])

    async def close(self) -> None:
        if self._store is not None:
            await self._store.close()

    async def _retried(self, what: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Try until it works, waiting longer each time; give up after `timeout_s`.

        What may work later is told once, anything else is raised. Raises StorageError.
        """
        wait = _FIRST_WAIT_S
        self.unfinished[what] = "not done yet"
        try:
            async with asyncio.timeout(self._orders.timeout_s):
                while True:
                    try:
                        return await attempt()
                    except (StorageError, BaseExceptionGroup) as error:
                        self._note_failure(what, innermost(error), is_first=wait == _FIRST_WAIT_S)
                    await asyncio.sleep(wait * random.uniform(0.5, 1.0))
                    wait = min(2 * wait, _LONGEST_WAIT_S)
        except TimeoutError as error:
            cause = f"no success within {self._orders.timeout_s:g} s: {self.unfinished[what]}"
            raise StorageUnavailable(what, self.where, cause) from error
        finally:
            del self.unfinished[what]

    def _note_failure(self, what: str, error: BaseException, *, is_first: bool) -> None:
        """Raises the error if trying again is useless."""
        if not isinstance(error, StorageUnavailable):
            raise error
        self.unfinished[what] = str(error)
        if is_first:
            self._tell(["trouble", f"{error}; it is tried again"])


class Usurped(StorageError):
    """Another incarnation of the experiment owns the storage now."""


_EPOCHS = ".epochs"
_OWNED_S = 1.0


def _epoch_key(epoch: int) -> str:
    return f"{_EPOCHS}/{epoch:06d}"


def innermost(error: BaseException) -> BaseException:
    """What a task group's error is about."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _walk(root: Path, private: tuple[str, ...], checkpoint_prefix: str) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = [
            name
            for name in folders
            if name not in private and not name.startswith((".", checkpoint_prefix))
        ]
        for name in names:
            if name not in private:
                yield Path(folder, name)
