"""Limits of memory: the kernel's own groups where they can be made, else folders of files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.runtime.launcher import Grant
from holdfast.runtime.local_launcher import LocalLauncher
from holdfast.runtime.warm.memory_groups import CannotEnforce, MemoryGroups, prepare
from tests.rig.workers.launcher_contract import OBEYING, ask, ends
from tests.rig.workers.processes import Heard, wait_for_end

MB = 1 << 20
KEEP = "tests.rig.workers.worker_entry:keep_bytes"


def refusal() -> str:
    try:
        prepare()
    except CannotEnforce as error:
        return str(error)
    return ""


def left(parent: int) -> list[str]:
    """The groups of this warm parent; other runs on this machine may have some, too."""
    return [path.name for path in MemoryGroups().below.glob(f"holdfast-{parent}-*")]


@pytest.fixture
def enforcing() -> None:
    """Control groups of the kernel."""
    if problem := refusal():
        pytest.skip(problem)


@pytest.mark.anyio
@pytest.mark.process
@pytest.mark.usefixtures("enforcing")
class TestKernel:
    async def test_a_worker_that_uses_more_is_killed_and_its_exit_says_so(
        self, launcher: LocalLauncher
    ) -> None:
        await launcher.open(OBEYING, b"")
        (parent,) = launcher.parents()
        heard, other = Heard(), Heard()
        worker = launcher.launch("w", heard, grant=Grant(memory_bytes=64 * MB))
        beside = launcher.launch("other", other, grant=Grant(memory_bytes=256 * MB))
        await ask(beside, other, "call", KEEP, 100 * MB)
        assert len(left(parent.pid)) == 2
        cause = await ends(worker, heard, "call", KEEP, 100 * MB)
        assert cause.startswith("used more than its memory request of 67.1 MB and was killed")
        assert heard.ending is not None
        assert heard.ending.is_out_of_memory
        assert await ends(beside, other, "return") == "exited with status 0"
        assert left(parent.pid) == []

    async def test_the_limit_counts_what_the_worker_starts_and_other_deaths_are_other_deaths(
        self, launcher: LocalLauncher
    ) -> None:
        await launcher.open(OBEYING, b"")
        heard = Heard()
        worker = launcher.launch("w", heard, grant=Grant(memory_bytes=64 * MB))
        hungry = "b'x' * (100 << 20)"
        status = await ask(
            worker, heard, "call", "subprocess:call", [sys.executable, "-S", "-c", hungry]
        )
        assert status == -signal.SIGKILL
        assert await ends(worker, heard, "exit", 3) == "exited with status 3"


SCRIPT = """
import os, signal, sys
import holdfast
from holdfast import tune

def train(config):
    with open(config["fifo"], "w") as fifo:
        print(os.getppid(), file=fifo)
    signal.pause()

holdfast.init(enforce_memory=True)
tune.Tuner(
    tune.with_resources(train, {"memory": 64 << 20}),
    param_space={"fifo": sys.argv[1]},
    run_config=tune.RunConfig(storage_path=sys.argv[2], verbose=0),
).fit()
"""


@pytest.mark.process
@pytest.mark.usefixtures("enforcing")
def test_a_script_that_is_killed_leaves_no_group(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    environ = {**os.environ, "HOLDFAST_TENSORBOARD": "0"}
    command = [sys.executable, "-c", SCRIPT, str(fifo), str(tmp_path)]
    with subprocess.Popen(command, env=environ, cwd=tmp_path) as script:
        warm_parent = int(fifo.read_text())  # the trial runs
        assert len(left(warm_parent)) == 1
        script.kill()
    wait_for_end(warm_parent)
    assert left(warm_parent) == []


class Files:
    """A folder as if control groups of version 2 were mounted there, with this process's group."""

    def __init__(self, root: Path) -> None:
        self.mounted, self.own_group = root, root / "cgroup"
        self.group = root / "user" / "script.scope"
        self.group.mkdir(parents=True)
        (root / "cgroup.controllers").write_text("cpu memory")
        (self.group / "cgroup.subtree_control").write_text("")
        (self.group / "cgroup.procs").write_text(f"{os.getpid()}\n")
        self.own_group.write_text("0::/user/script.scope\n")

    def prepare(self) -> None:
        prepare(self.mounted, self.own_group)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    def remove(folder: Path) -> None:  # the kernel removes a group with its files
        for file in folder.iterdir():
            file.unlink()
        os.rmdir(folder)

    monkeypatch.setattr(Path, "rmdir", remove)
    return Files(tmp_path)


def test_with_version_2_the_processes_move_aside_and_the_children_get_limits(files: Files) -> None:
    files.prepare()
    main = files.group / "holdfast-main"
    assert (main / "cgroup.procs").read_text() == str(os.getpid())
    assert (files.group / "cgroup.subtree_control").read_text() == "+memory"
    files.own_group.write_text("0::/user/script.scope/holdfast-main\n")  # as the kernel now says
    files.prepare()
    group = MemoryGroups(files.mounted, files.own_group).make(5 * MB)
    (made,) = files.group.glob("holdfast-*-*")
    written = {file.name: file.read_text() for file in made.iterdir()}
    assert written == {
        "memory.max": str(5 * MB),
        "memory.swap.max": "0",
        "memory.oom.group": "1",
    }
    group.remove()
    assert not made.exists()


def test_processes_of_others_are_not_moved(files: Files) -> None:
    stranger = os.getppid()
    (files.group / "cgroup.procs").write_text(f"{os.getpid()}\n{stranger}\n")
    with pytest.raises(CannotEnforce, match=rf"\(such as {stranger}\).*systemd-run --user"):
        files.prepare()


def test_groups_of_a_process_that_has_ended_are_removed_and_others_stay(files: Files) -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", ""]) as ended:
        ended.wait()
    for name in (f"holdfast-{ended.pid}-1", f"holdfast-{os.getpid()}-1", "holdfast-main"):
        (files.group / name).mkdir()
    MemoryGroups(files.mounted, files.own_group)
    found = sorted(path.name for path in files.group.iterdir() if path.is_dir())
    assert found == sorted([f"holdfast-{os.getpid()}-1", "holdfast-main"])


def test_a_system_without_control_groups_says_so(tmp_path: Path) -> None:
    with pytest.raises(CannotEnforce, match="has no control groups for memory"):
        prepare(tmp_path, tmp_path / "none")


def test_a_group_that_cannot_be_changed_says_which_and_what_to_do(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuses)
    with pytest.raises(CannotEnforce, match=r"script.scope cannot be changed \(Permission denied"):
        files.prepare()
    files.own_group.write_text("4:memory:/job\n")
    with pytest.raises(CannotEnforce, match="version 1, which only root can change"):
        files.prepare()
