"""Readers of remote checkpoints: during removals by a run, many at once, and killed ones."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import pytest

from holdfast.syncer.checkpoint import download, manifest, shared_copy
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.syncer.checkpoint.download import FolderChanged
from holdfast.syncer.checkpoint.shared_copy import cache_folder, remove_unread
from holdfast.syncer.errors import (
    CheckpointGone,
    DirectoryMissing,
    ManifestMismatch,
    NotStored,
    StorageRefused,
    StorageUnavailable,
)
from holdfast.syncer.files.tree import CLAIMS, MANIFEST_NAME
from holdfast.syncer.stores.arrow import ArrowStore
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.s3 import ranges
from tests.rig.faults.fault_proxy import FaultProxy
from tests.rig.s3_server import S3Server

pytestmark = pytest.mark.usefixtures("temporary_folder")


class Distant(Protocol):
    opened: list[str]
    folder: Path
    kind: Any
    location: Location


NAMES = ("a.pt", "model.pt", "nested/z.pt")


def write(folder: Path, content: bytes) -> None:
    for name in NAMES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    manifest.write(folder)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let Ctrl-C raise, as in a terminal; a shell starts background processes without that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def folder(distant: Distant) -> Path:
    """The place of a checkpoint in an experiment's storage."""
    (distant.folder / "run" / CLAIMS).mkdir(parents=True)
    (distant.folder / "run" / CLAIMS / "000001").touch()
    made = distant.folder / "run" / "trial" / "checkpoint_000000"
    write(made, b"first")
    return made


@pytest.fixture
def checkpoint(distant: Distant, folder: Path) -> Checkpoint:
    return Checkpoint.from_location(distant.location.child("run/trial/checkpoint_000000"))


def left() -> list[str]:
    return os.listdir(cache_folder())


Meanwhile = Callable[[Callable[[], None]], None]


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    """Do something once, after a reader has listed the files to download."""
    transfer = download._download

    def then(act: Callable[[], None]) -> None:
        pending = [act]

        async def acting(*args: Any) -> None:
            if pending:
                pending.pop()()
            await transfer(*args)

        monkeypatch.setattr(download, "_download", acting)

    return then


# -- while a run removes it -----------------------------------------------------------------------


def test_one_that_was_superseded_is_named_as_that(checkpoint: Checkpoint, folder: Path) -> None:
    shutil.rmtree(folder)
    with pytest.raises(CheckpointGone, match="num_to_keep supersedes") as told:
        checkpoint.to_directory()
    assert isinstance(told.value, NotStored)
    assert isinstance(told.value, DirectoryMissing)


def test_one_that_is_on_its_way_in_or_out_is_not_read(
    checkpoint: Checkpoint, folder: Path
) -> None:
    (folder / MANIFEST_NAME).unlink()
    with pytest.raises(CheckpointGone, match="its upload is incomplete, or it is being removed"):
        checkpoint.to_directory()
    with pytest.raises(CheckpointGone), checkpoint.as_directory():
        pass
    assert left() == []


@pytest.mark.parametrize("removed", [(), ("model.pt",), NAMES])
def test_one_that_is_removed_during_its_download_is_read_whole_or_not_at_all(
    checkpoint: Checkpoint, folder: Path, meanwhile: Meanwhile, removed: tuple[str, ...]
) -> None:
    """Remove it as the uploader does: the manifest first."""

    def remove() -> None:
        for name in (MANIFEST_NAME, *removed):
            (folder / name).unlink()

    meanwhile(remove)
    if removed:
        with pytest.raises(CheckpointGone, match="removed meanwhile"), checkpoint.as_directory():
            pass
    else:
        with checkpoint.as_directory() as path:
            assert [Path(path, name).read_bytes() for name in NAMES] == [b"first"] * 3
    assert left() == []


@pytest.mark.parametrize("has_manifest", [True, False])
def test_one_that_is_rewritten_during_its_download_is_read_again_and_never_mixed(
    checkpoint: Checkpoint, folder: Path, meanwhile: Meanwhile, has_manifest: bool
) -> None:
    def anew() -> None:
        write(folder, b"second one")
        if not has_manifest:
            (folder / MANIFEST_NAME).unlink()

    if not has_manifest:  # and not ours
        shutil.rmtree(folder.parent.parent / CLAIMS)
        (folder / MANIFEST_NAME).unlink()
    meanwhile(anew)
    with checkpoint.as_directory() as path:
        assert [Path(path, name).read_bytes() for name in NAMES] == [b"second one"] * 3
    assert left() == []
    copy = Path(checkpoint.to_directory())
    assert [(copy / name).read_bytes() for name in NAMES] == [b"second one"] * 3


def test_one_that_changes_without_end_is_given_up(
    checkpoint: Checkpoint, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 0

    async def changing(*_: Any) -> None:
        nonlocal count
        count += 1
        write(folder, b"x" * count)
        raise StorageUnavailable("get", "model.pt", "1 of 5 bytes came")

    monkeypatch.setattr(download, "_download", changing)
    with pytest.raises(FolderChanged, match="rewritten during each attempt"):
        checkpoint.to_directory()
    assert count == 3


def test_damage_that_stays_is_reported_as_what_it_is(checkpoint: Checkpoint, folder: Path) -> None:
    (folder / "model.pt").write_bytes(b"worse")
    with pytest.raises(ManifestMismatch, match=r"model\.pt has a different"):
        checkpoint.to_directory()


def test_one_of_others_needs_no_manifest(distant: Distant) -> None:
    """Ray writes none; neither do people who copy files into a bucket."""
    write(distant.folder / "run" / "trial" / "checkpoint_000000", b"theirs")
    (distant.folder / "run" / "trial" / "checkpoint_000000" / MANIFEST_NAME).unlink()
    for below in ("run/trial/checkpoint_000000", "run"):
        location = distant.location.child(below)
        with Checkpoint.from_location(location).as_directory() as path:
            assert len([file for file in Path(path).rglob("*") if file.is_file()]) == 3


def test_who_may_look_at_nothing_else_reads_what_there_is(
    checkpoint: Checkpoint, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = ArrowStore.list

    async def refused(self: Any, prefix: str = "", **kwargs: Any) -> Any:
        if prefix == CLAIMS:
            raise StorageRefused("list", prefix, "AccessDenied")
        return await listing(self, prefix, **kwargs)

    monkeypatch.setattr(ArrowStore, "list", refused)
    (folder / MANIFEST_NAME).unlink()
    with checkpoint.as_directory() as path:
        assert Path(path, "model.pt").read_bytes() == b"first"


@pytest.mark.server
def test_on_s3_what_is_not_whole_is_invisible_and_what_is_not_ours_is_read(
    moto: S3Server, folder: Path
) -> None:
    bucket = Location.resolve(moto.uri("bucket/remote-readers"), None, {})

    async def put(*keys: str) -> None:
        store = bucket.open_store()
        for key in keys:
            await store.put(key, b"content")
        await store.close()

    asyncio.run(put("run/.epochs/000001", *(f"run/t/checkpoint_000001/{name}" for name in NAMES)))
    asyncio.run(put(*(f"theirs/t/checkpoint_000001/{name}" for name in NAMES)))
    ours = Checkpoint(moto.uri("bucket/remote-readers/run/t/checkpoint_000001"))
    with pytest.raises(CheckpointGone, match="no manifest"):
        ours.to_directory()
    theirs = Checkpoint(moto.uri("bucket/remote-readers/theirs/t/checkpoint_000001"))
    assert (Path(theirs.to_directory()) / "model.pt").read_bytes() == b"content"


@pytest.mark.server
def test_on_s3_one_other_byte_in_any_range_is_an_error_that_names_the_file(
    moto: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "RANGE_BYTES", 1000)
    content, folder = os.urandom(4500), tmp_path / "made"
    folder.mkdir()
    write(folder, content)
    (folder / "empty").mkdir()
    manifest.write(folder)
    location = Location.resolve(moto.uri("bucket/remote-readers/ranges"), None, {})

    async def put(name: str, data: bytes) -> None:
        store = location.open_store()
        await store.put(name, data)
        await store.close()

    for name in (*NAMES, MANIFEST_NAME):
        asyncio.run(put(name, (folder / name).read_bytes()))
    copy = Path(Checkpoint.from_location(location).to_directory(tmp_path / "copy"))
    assert {name: (copy / name).read_bytes() for name in NAMES} == dict.fromkeys(NAMES, content)
    assert (copy / "empty").is_dir()
    for at in (0, 2500, 4499):
        asyncio.run(put(NAMES[1], content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]))
        with pytest.raises(ManifestMismatch, match=r"model\.pt has a different sha256"):
            Checkpoint.from_location(location).to_directory(tmp_path / "other")
    assert sorted(os.listdir(tmp_path)) == ["copy", "made", "temporary"]


@pytest.mark.parametrize(
    ("path", "levels", "above"),
    [
        ("s3://bucket/a/b/c?region=x", 2, "s3://bucket/a?region=x"),
        ("s3://bucket/b/c", 2, "s3://bucket?region=x"),
        ("s3://bucket/c", 2, None),
        ("/a/b/c/", 2, "/a"),
        ("memory://a/b/c", 2, "/a"),
    ],
)
def test_the_folder_above_is_found_or_there_is_none(
    path: str, levels: int, above: str | None
) -> None:
    found = Location.resolve(path, None, {}).above(levels)
    assert (None if found is None else found.path) == (
        above and above.removeprefix("s3://").partition("?")[0]
    )


# -- many, and killed ones ------------------------------------------------------------------------

CROWD = """
import os, signal, sys
from holdfast.syncer.checkpoint import shared_copy
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
print(os.listdir(shared_copy.cache_folder()))
"""


@pytest.mark.server
@pytest.mark.process
def test_ten_processes_at_once_download_once_and_a_killed_one_leaves_nothing(
    moto: S3Server, folder: Path
) -> None:
    proxy = FaultProxy(moto.endpoint)
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
from holdfast.syncer.checkpoint import shared_copy
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
    monkeypatch.setattr(shared_copy, "_remove_unread", lambda cache: None)
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
print(os.listdir(shared_copy.cache_folder()))
os.close(lives)
os.waitpid(stayer, 0)
"""


@pytest.mark.process
def test_children_and_inner_readers_end_no_reading_and_prolong_none(folder: Path) -> None:
    done = run(DISTANT + FORKING, str(folder))
    assert (done.stdout.split("\n")[:4], done.stderr) == (["True", "True", "True", "[]"], "")


@pytest.fixture
def stalled(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A process was stopped while it downloaded the checkpoint; returns the name of its copy."""
    monkeypatch.setattr(shared_copy, "_STALLED_S", 0.05)
    with checkpoint.as_directory() as copy:
        name = Path(copy).name
    with shared_copy._gate(cache_folder() / name):
        yield name


def test_who_waits_for_a_download_that_stands_still_makes_a_copy_of_its_own(
    checkpoint: Checkpoint, stalled: str
) -> None:
    with checkpoint.as_directory() as copy:
        assert Path(copy).name != stalled
        assert (Path(copy) / "a.pt").read_bytes() == b"first"
    assert left() == [f"{stalled}.gate"]


def test_a_download_that_moves_is_waited_for(
    stalled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = iter([1, 2, 3, 3])
    gate = shared_copy._gate(cache_folder() / stalled, 0.01, progress=lambda: next(sizes))
    with pytest.raises(BlockingIOError), gate:
        pass
    assert next(sizes, None) is None


def test_who_leaves_waits_for_no_one_that_is_stopped(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_copy, "_TIDY_S", 0.05)
    with checkpoint.as_directory() as copy:
        gate = shared_copy._gate(Path(copy))
        gate.__enter__()
    gate.__exit__(None, None, None)
    assert Path(copy).is_dir()
    remove_unread()
    assert left() == []


def test_a_child_that_is_forked_during_a_download_does_not_hold_the_gate(
    checkpoint: Checkpoint, folder: Path, meanwhile: Meanwhile
) -> None:
    """As when a data loader starts while another thread downloads."""
    ends, lives = os.pipe()
    children: list[int] = []

    def fork() -> None:
        child = os.fork()
        if not child:
            told, _, _ = select.select([ends], [], [], 20)
            os._exit(0 if told else 1)
        children.append(child)

    meanwhile(fork)
    try:
        with checkpoint.as_directory():
            assert len(children) == 1
        with checkpoint.as_directory():
            """Otherwise a new reader would wait until the child ends."""
        assert left() == []
    finally:
        os.write(lives, b"x")
        assert os.waitpid(children[0], 0)[1] == 0


def test_processes_with_another_temporary_directory_have_a_copy_of_their_own(
    checkpoint: Checkpoint, folder: Path, tmp_path: Path
) -> None:
    script = DISTANT + "with checkpoint.as_directory() as path: print(path)"
    with checkpoint.as_directory() as path:
        done = run(script, str(folder), env={**os.environ, "TMPDIR": str(tmp_path)})
        other = Path(done.stdout.strip())
        assert other != Path(path)
        assert other.is_relative_to(tmp_path)
        assert Path(path).exists()
    assert not other.exists()


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))


FULL = """
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
try:
    with checkpoint.as_directory():
        pass
except Exception as error:
    print(type(error).__name__, error)
print(os.listdir(shared_copy.cache_folder()))
"""


@pytest.mark.process
def test_a_download_that_the_disk_has_no_room_for_says_so_and_leaves_nothing(
    folder: Path,
) -> None:
    write(folder, b"weights " * 10_000)
    done = run(DISTANT + FULL, str(folder), preexec_fn=limited)
    error, rest = done.stdout.splitlines()
    assert "File too large" in error, done.stderr
    assert rest == "[]"


def test_without_space_another_place_is_suggested(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: Any) -> None:
        cause = OSError(errno.ENOSPC, "No space left on device")
        raise StorageUnavailable("get", "model.pt", "No space left on device") from cause

    monkeypatch.setattr(download, "_download", full)
    with pytest.raises(StorageUnavailable, match="TMPDIR") as told, checkpoint.as_directory():
        pass
    assert str(cache_folder()) in str(told.value)
    assert left() == []


@pytest.mark.usefixtures("interruptible")
def test_a_notebook_that_is_interrupted_does_not_wait_for_the_download(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, cancelled = threading.Event(), threading.Event()

    class Thread(ThreadPoolExecutor):
        def submit(self, *args: Any, **kwargs: Any) -> Any:
            waits.clear()
            future = super().submit(*args, **kwargs)
            waits.set()
            return future

    async def endless(*_: Any) -> None:
        waits.wait()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    monkeypatch.setattr(download, "_download", endless)
    monkeypatch.setattr(download, "ThreadPoolExecutor", Thread)

    async def cell() -> None:
        with pytest.raises(KeyboardInterrupt), checkpoint.as_directory():
            pass

    loop = asyncio.new_event_loop()  # asyncio.run would take Ctrl-C for itself, unlike a notebook
    loop.run_until_complete(cell())
    loop.close()
    assert cancelled.is_set()
    assert left() == []


def test_what_cannot_be_tidied_up_is_not_an_error_of_the_reader(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Any) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    with checkpoint.as_directory():
        monkeypatch.setattr(shutil, "rmtree", refused)
    monkeypatch.undo()


@pytest.mark.parametrize("gone", ["nothing", "folder"])
def test_nothing_is_tidied_up_where_nothing_is(temporary_folder: Path, gone: str) -> None:
    remove_unread()
    assert list(temporary_folder.iterdir()) == []
