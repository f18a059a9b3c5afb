"""The folder of a process's objects, and who removes it."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from holdfast.runtime import objects

VALUE = objects.pickled(b"x" * 1000)
HOLDER = """
import sys
from holdfast.runtime import objects
own = objects.ObjectFolder({objects.FOLDER: sys.argv[1]})
print(own.put("object", objects.pickled(b"x")), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {objects.FOLDER: str(tmp_path / "objects")}


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of /dev/shm, and one in place of the disk."""
    monkeypatch.setattr(objects, "_MEMORY", str(tmp_path / "memory"))
    # However full the disk of the tests is, a part of memory stays free.
    monkeypatch.setattr(objects, "_LEFT_OF_MEMORY", 1 << 40)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "disk"))
    for name in ("memory", "disk"):
        (tmp_path / name).mkdir()
    return tmp_path / "memory"


def files(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file()]


def path_of(uploader: subprocess.Popen[str]) -> Path:
    assert uploader.stdout is not None
    return Path(uploader.stdout.readline().strip())


def test_what_was_put_is_one_file_until_the_object_folder_is_closed(
    environ: dict[str, str], tmp_path: Path
) -> None:
    own = objects.ObjectFolder(environ)
    path = own.put("object", VALUE)
    assert objects.read(path) == b"x" * 1000
    assert files(tmp_path) == ["object"]
    assert os.stat(Path(path).parent).st_mode & 0o077 == 0
    own.close()
    assert list((tmp_path / "objects").iterdir()) == []


def test_only_what_a_dead_process_has_left_is_swept(
    environ: dict[str, str], tmp_path: Path
) -> None:
    command = [sys.executable, "-c", HOLDER, environ[objects.FOLDER]]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    own = objects.ObjectFolder(environ)
    with (
        subprocess.Popen(command, **pipes) as dead,
        subprocess.Popen(command, **pipes) as alive,
    ):
        left, kept = path_of(dead), path_of(alive)
        mine = Path(own.put("mine", VALUE))
        dead.send_signal(signal.SIGKILL)
        dead.wait()
        assert left.exists()
        objects.remove_abandoned(environ)
        assert not left.parent.exists()
        assert kept.exists()
        assert mine.exists()
        alive.kill()
    own.close()
    objects.remove_abandoned(environ)
    assert list((tmp_path / "objects").iterdir()) == []


def test_the_packed_files_of_a_killed_process_are_swept_too(
    environ: dict[str, str], memory: Path
) -> None:
    source = (
        "import os, signal\n"
        "from holdfast.runtime.objects import temporary_folder\n"
        "folder = temporary_folder()\n"
        "open(os.path.join(folder.path, 'modules.tar.gz'), 'w').close()\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    disk = memory.parent / "disk"
    subprocess.run(
        [sys.executable, "-c", source], env={**os.environ, "TMPDIR": str(disk)}, check=False
    )
    assert files(disk) == ["modules.tar.gz"]
    mine = objects.temporary_folder()
    objects.remove_abandoned(environ)
    assert files(disk) == []
    assert Path(mine.path).is_dir()
    mine.remove()
    assert list(disk.iterdir()) == []


def test_a_forked_child_leaves_its_parents_objects_alone(environ: dict[str, str]) -> None:
    own = objects.ObjectFolder(environ)
    path = own.put("object", VALUE)
    pid = os.fork()
    if pid == 0:
        own.forsake()
        own.close()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    objects.remove_abandoned(environ)  # it has not removed the lock, either
    assert objects.read(path) == b"x" * 1000
    own.close()


def test_a_folder_that_others_can_write_to_is_refused(environ: dict[str, str]) -> None:
    base = Path(environ[objects.FOLDER], f"holdfast-objects-{os.getuid()}")
    (base / "1-theirs").mkdir(parents=True)
    base.chmod(0o777)
    with pytest.raises(objects.ForeignFolder, match="only this user"):
        objects.ObjectFolder(environ).put("object", VALUE)
    objects.remove_abandoned(environ)
    assert (base / "1-theirs").exists()


def test_where_memory_would_run_short_the_disk_is_taken(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    little = SimpleNamespace(available=2 * VALUE.file_bytes - 1)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: little)
    own = objects.ObjectFolder({})
    assert own.put("object", VALUE).startswith(str(memory.parent / "disk"))
    own.close()


def test_a_disk_too_full_for_a_temporary_folder_disturbs_only_who_puts_something(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    objects.remove_abandoned({})
    assert objects.roots({}) == (str(memory), "/tmp")


def test_where_nothing_has_room_it_learns_how_much_there_was(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(path: str, value: objects.Pickled) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(objects, "write", write)
    own = objects.ObjectFolder({})
    with pytest.raises(
        objects.NoRoom, match=r"it takes 1,\d\d\d bytes \(.*memory: .*disk: [\d,]+ b"
    ):
        own.put("object", VALUE)
    own.close()
    assert files(memory.parent) == []
