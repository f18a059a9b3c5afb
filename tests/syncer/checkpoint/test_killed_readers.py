"""Many processes that read one remote checkpoint, and killed ones: one copy, and nothing left."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.syncer.checkpoint import download
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.syncer.checkpoint.download import cache_folder, remove_unread
from holdfast.syncer.files.tree import MANIFEST_NAME
from holdfast.syncer.stores.location import Location
from tests.rig.storage.proxy import Proxy
from tests.rig.storage.s3_server import S3Server
from tests.syncer.checkpoint.remote import NAMES, left
from tests.syncer.checkpoint.remote import checkpoint as checkpoint
from tests.syncer.checkpoint.remote import folder as folder
from tests.syncer.conftest import Distant

pytestmark = pytest.mark.usefixtures("temporary_folder")
CROWD = """
import os, signal, sys
from holdfast.syncer.checkpoint import download
from holdfast.syncer.checkpoint.checkpoint import Checkpoint

import aiobotocore.session, anyio.to_thread  # once, for all who are forked

uri, count = sys.argv[1], int(sys.argv[2])
told, tells = os.pipe()
ends, lives = os.pipe()

def read():
    with Checkpoint(uri).as_directory() as path:
        os.write(tells, (path + "\\n").encode())
        os.read(ends, 1)

readers = []
for _ in range(count):
    pid = os.fork()
    if not pid:
        os.close(lives)
        read()
        os._exit(0)
    readers.append(pid)
os.close(tells)
paths = [os.read(told, 4096)]
while sum(part.count(b"\\n") for part in paths) < count:
    paths.append(os.read(told, 4096))
print(len(set(b"".join(paths).split())), flush=True)
killed, *others = readers
os.kill(killed, signal.SIGKILL)
os.waitpid(killed, 0)
os.close(lives)
print([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in others].count(0), flush=True)
print(os.listdir(download.cache_folder()))
"""


@pytest.mark.server
@pytest.mark.process
def test_ten_processes_at_once_download_once_and_a_killed_one_leaves_nothing(
    moto: S3Server, folder: Path
) -> None:
    proxy = Proxy(moto.endpoint)
    uri = moto.uri("bucket/crowd").replace(
        moto.endpoint.replace("http://", ""), proxy.endpoint.replace("http://", "")
    )

    async def put() -> None:
        store = Location.resolve(moto.uri("bucket/crowd"), None, {}).open_store()
        for name in (*NAMES, MANIFEST_NAME):
            await store.put(name, folder / name)
        await store.close()

    asyncio.run(put())
    try:
        done = run(CROWD, uri, "10")
    finally:
        proxy.close()
    assert done.stdout.split("\n")[:3] == ["1", "9", "[]"], done.stderr
    fetched = [line for line in proxy.log if line.startswith("GET") and ".pt" in line]
    assert len(fetched) == len(NAMES)


def run(script: str, *arguments: str, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        **kwargs,
    )


DISTANT = """
import os, signal, sys
from pathlib import Path
from fsspec.implementations.local import LocalFileSystem
from holdfast.syncer.checkpoint import download
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.s3 import ranges

class DistantFileSystem(LocalFileSystem):
    cachable = False

checkpoint = Checkpoint.from_location(Location.resolve(sys.argv[1], DistantFileSystem(), {}))
"""
KILLED = """
get = download._download
async def die(store, remote, target):
    await get(store, remote, target)
    os.kill(os.getpid(), signal.SIGKILL)

download._download = die
with checkpoint.as_directory():
    pass
"""


@pytest.mark.process
def test_what_a_killed_download_left_goes_with_the_next_reader_of_anything(
    checkpoint: Checkpoint, folder: Path, distant: Distant
) -> None:
    assert run(DISTANT + KILLED, str(folder)).returncode == -9
    assert [name.rpartition(".")[2] for name in sorted(left())] == ["gate", "partial"]
    shutil.copytree(folder, distant.folder / "other")
    with Checkpoint.from_location(distant.location.child("other")).as_directory():
        assert not [name for name in left() if name.endswith("partial")]
    assert left() == []


@pytest.mark.process
def test_what_a_killed_download_left_is_not_a_part_of_the_next(
    checkpoint: Checkpoint, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for a reader that came before it died and waited at its gate."""
    monkeypatch.setattr(download, "_remove_unread", lambda cache: None)
    assert run(DISTANT + KILLED, str(folder)).returncode == -9
    (partial,) = cache_folder().glob("*.partial")
    (partial / "model.pt").write_bytes(b"half")
    with checkpoint.as_directory() as path:
        assert Path(path, "model.pt").read_bytes() == b"first"


READER = """
with checkpoint.as_directory() as path:
    print(path, flush=True)
    sys.stdin.read()
"""


@pytest.mark.process
def test_what_killed_readers_left_goes_also_without_another_reader(folder: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", DISTANT + READER, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as reader:
        assert reader.stdout is not None
        path = Path(reader.stdout.readline().strip())
        remove_unread()
        assert path.exists()
        reader.kill()
    remove_unread()
    assert left() == []


FORKING = """
ends, lives = os.pipe()
with checkpoint.as_directory() as path:
    leaver = os.fork()
    if leaver:
        os.waitpid(leaver, 0)
        print(Path(path, "model.pt").exists())
        with checkpoint.as_directory() as again:
            print(again == path)
        print(Path(path, "model.pt").exists())
        stayer = os.fork()
        if not stayer:
            os.close(lives)
            os.read(ends, 1)
            os._exit(0)
if not leaver:
    os._exit(0)
print(os.listdir(download.cache_folder()))
os.close(lives)
os.waitpid(stayer, 0)
"""


@pytest.mark.process
def test_children_and_inner_readers_end_no_reading_and_prolong_none(folder: Path) -> None:
    done = run(DISTANT + FORKING, str(folder))
    assert (done.stdout.split("\n")[:4], done.stderr) == (["True", "True", "True", "[]"], "")
