"""One folder of a bucket, seen from outside the experiment that writes there."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TypeVar

from holdfast.syncer.errors import NotStored
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.store import Store
from tests.rig import checker
from tests.rig.storage.proxy import Proxy
from tests.rig.storage.s3_server import S3Server

T = TypeVar("T")


class Bucket:
    """The bucket of an experiment.

    `storage_path` leads through the proxy, if there is one, and has no credentials; those are in
    `environ`. `options` are further ones of an S3 URI; each URI of it begins with `public`.
    """

    def __init__(
        self,
        server: S3Server,
        prefix: str,
        proxy: Proxy | None = None,
        *,
        options: str = "",
    ) -> None:
        self.server = server
        self.proxy = proxy
        self.uri = server.uri(f"bucket/{prefix}")
        endpoint = server.endpoint if proxy is None else proxy.endpoint
        self.public = f"s3://bucket/{prefix}"
        more = f"&{options}" if options else ""
        self.storage_path = f"{self.public}?endpoint_override={endpoint}{more}"

    @property
    def environ(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": self.server.access_key,
            "AWS_SECRET_ACCESS_KEY": self.server.secret_key,
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def download(self, target: Path, name: str = "run") -> Path:
        """The objects of the experiment `name` as files for the checker, including incomplete
        ones."""

        async def fetch(store: Store) -> None:
            for entry in await store.list(name, leftovers=True):
                path = target / entry.key
                path.parent.mkdir(parents=True, exist_ok=True)
                await store.get(entry.key, path)

        while True:
            try:
                self._with_store(fetch)
            except NotStored:  # removed since it was listed: a live run has put a newer one
                shutil.rmtree(target / name, ignore_errors=True)
            else:
                return target / name

    def upload(self, source: Path, name: str = "run") -> None:
        """Put the files of a folder as objects of the experiment `name`."""

        files = [path for path in source.rglob("*") if path.is_file()]

        async def send(store: Store) -> None:
            for path in files:
                await store.put(f"{name}/{path.relative_to(source).as_posix()}", path)

        self._with_store(send)

    def plant(self, keys: Iterable[str], content: bytes) -> None:
        """Objects in this folder with keys that no store of holdfast would use."""
        from botocore.session import get_session

        client = get_session().create_client(
            "s3",
            endpoint_url=self.server.endpoint,
            region_name="us-east-1",
            aws_access_key_id=self.server.access_key,
            aws_secret_access_key=self.server.secret_key,
        )
        name, _, folder = self.public.removeprefix("s3://").partition("/")
        for key in keys:
            client.put_object(Bucket=name, Key=f"{folder}/{key}", Body=content)
        client.close()

    def listing(self) -> dict[str, tuple[int, str | None]]:
        """Size and ETag of every object."""

        async def look(store: Store) -> dict[str, tuple[int, str | None]]:
            entries = await store.list(leftovers=True)
            return {entry.key: (entry.size, entry.etag) for entry in entries}

        return self._with_store(look)

    def named(self, ending: str) -> set[str]:
        """The keys with this ending."""

        async def look(store: Store) -> set[str]:
            return {entry.key for entry in await store.list() if entry.key.endswith(ending)}

        return self._with_store(look)

    def wait_for_committed(self, count: int) -> None:
        """Wait until the published journal has this many committed checkpoints."""
        assert isinstance(self.proxy, Proxy)
        while self._committed() < count:
            self.proxy.wait_for("PUT", "/head.json")

    def _committed(self) -> int:
        """The committed checkpoints in the part of the journal that the head names: a restore does
        not see the rest."""
        with tempfile.TemporaryDirectory() as folder:
            (root := Path(folder, "run")).joinpath("journal").mkdir(parents=True)

            async def fetch(store: Store) -> None:
                await store.get("run/head.json", root / "head.json")
                head = json.loads((root / "head.json").read_text())
                for segment in head["segments"]:
                    path = root / "journal" / segment["name"]
                    await store.get(f"run/journal/{segment['name']}", path)
                    os.truncate(path, segment["size"])

            try:
                self._with_store(fetch)
            except NotStored:  # no head yet, or a newer one names other objects
                return 0
            return sum(name == "Committed" for name, *_ in checker.records(root))

    def _with_store(self, work: Callable[[Store], Awaitable[T]]) -> T:
        async def session() -> T:
            store = Location.resolve(self.uri, None, {}).open_store()
            try:
                return await work(store)
            finally:
                await store.close()

        return asyncio.run(session())
