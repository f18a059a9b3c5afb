"""Several experiments take from one machine, through files and locks alone."""

from __future__ import annotations

import os
import queue
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from holdfast.experiment.machine.fair_share import CapacityRequest
from holdfast.experiment.machine.machine_share import MachineShare
from holdfast.experiment.machine.members import MachineFolder, Member, Membership, is_locked
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.resources import Allocation
from tests.rig.workers.processes import PATIENCE_S, count_fds

CPU = {"CPU": 1.0}


class Experiment:
    """One that shares the machine, and what it has been granted."""

    def __init__(self, folder: MachineFolder, name: str, cpus: float, gpus: Sequence[str]) -> None:
        total = {"CPU": cpus, **({"GPU": float(len(gpus))} if gpus else {})}
        member = Member.here(name, shares=True, total=total, uses=total, gpus=gpus)
        self.told: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.granted: queue.SimpleQueue[Allocation] = queue.SimpleQueue()
        self.share = MachineShare(folder, member, self.told.put)

    def ask(self, amounts: Mapping[str, float] = CPU) -> CapacityRequest:
        asked = self.share.take(amounts, self.granted.put)
        assert isinstance(asked, CapacityRequest)
        return asked

    def gets(self) -> Allocation:
        return self.granted.get(timeout=PATIENCE_S)

    def waits(self) -> str:
        """Wait until it has said that it waits."""
        text = self.told.get(timeout=PATIENCE_S)
        assert self.granted.empty()
        return text


class Machine:
    def __init__(self, path: Path, stack: ExitStack) -> None:
        self.folder = MachineFolder(path)
        self.stack = stack

    def starts(self, name: str, *, cpus: float = 2, gpus: Sequence[str] = ()) -> Experiment:
        made = Experiment(self.folder, name, cpus, gpus)
        self.stack.callback(made.share.close)
        return made


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    before = count_fds()
    with ExitStack() as stack:
        yield Machine(tmp_path / "machine", stack)
    assert os.listdir(tmp_path / "machine") in ([], ["mutex"])
    assert count_fds() == before


def test_one_waits_until_another_gives_back(machine: Machine) -> None:
    a, b = machine.starts("a", cpus=1), machine.starts("b", cpus=1)
    a.ask()
    held = a.gets()
    b.ask()
    assert "experiment a) shares this machine" in b.waits()
    a.share.give_back(held)
    assert b.gets().amounts == CPU


def test_what_an_experiment_held_is_free_when_it_leaves(machine: Machine) -> None:
    a, b = machine.starts("a"), machine.starts("b")
    for _ in range(2):
        a.ask()
    a.gets(), a.gets()
    b.ask({"CPU": 2.0})
    b.waits()
    a.share.close()
    assert b.gets().amounts == {"CPU": 2.0}


def test_a_withdrawn_request_lets_the_next_one_pass(machine: Machine) -> None:
    a, large, small = (machine.starts(name) for name in ("a", "large", "small"))
    a.ask()
    a.gets()
    request = large.ask({"CPU": 2.0})
    large.waits()
    small.ask()
    small.waits()
    assert large.share.cancel(request)
    assert not large.share.cancel(request)
    small.gets()


def test_each_gets_other_gpus_and_parts_of_one_add_up(machine: Machine) -> None:
    a = machine.starts("a", gpus=["0", "1"])
    b = machine.starts("b", gpus=["1"])
    a.ask({"GPU": 1.0})
    assert a.gets().gpus == (0,)
    b.ask({"GPU": 0.5})
    assert b.gets().gpus == (0,)  # the first that it knows is the machine's second
    a.ask({"GPU": 0.5})
    assert a.gets().gpus == (1,)
    b.ask({"GPU": 0.25})
    b.waits()


def test_who_needs_nothing_waits_for_no_one(machine: Machine) -> None:
    a = machine.starts("a")
    assert isinstance(a.share.take({"CPU": 0}, a.granted.put), Allocation)


def test_a_file_that_no_version_has_written_is_passed_over(machine: Machine) -> None:
    a = machine.starts("a")
    other = Member.here("b", shares=True, total=CPU, uses=CPU, gpus=())
    membership = Membership(machine.folder, other)
    (machine.folder.path / f"{membership.name}.json").write_text('{"format": 99, "pid": -4}')
    a.ask()
    a.gets()
    membership.close()


def test_what_a_cleaner_of_old_files_removes_is_written_again(machine: Machine) -> None:
    a, b = machine.starts("a", cpus=1), machine.starts("b", cpus=1)
    with machine.folder.changing():  # nobody writes meanwhile: what is new is no old file
        for path in machine.folder.path.iterdir():
            path.unlink(missing_ok=True)
    a.ask()
    a.gets()
    b.ask()
    b.waits()


@pytest.mark.parametrize("left", [".alive", ".bell", ".json"])
def test_it_is_written_again_beside_what_a_cleaner_has_left(machine: Machine, left: str) -> None:
    a = machine.starts("a", cpus=1)
    with machine.folder.changing():
        for path in machine.folder.path.iterdir():
            if path.suffix != left:
                path.unlink(missing_ok=True)
    a.ask()
    a.gets()


def test_it_waits_without_a_bell_while_nothing_can_be_written(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, make, failing = machine.starts("a"), os.mkfifo, [True]

    def fails_once(*arguments: Any) -> None:
        if failing:
            failing.pop()
            raise OSError(28, "No space left on device")
        make(*arguments)

    monkeypatch.setattr(os, "mkfifo", fails_once)
    for path in machine.folder.path.glob("*.lock"):
        path.unlink()
    a.ask()
    assert "No space left on device" in a.told.get(timeout=PATIENCE_S)  # it may try again at once
    a.ask()  # which wakes it
    assert a.gets().amounts == a.gets().amounts == CPU


def test_what_the_others_cannot_see_is_not_taken(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = machine.starts("a")
    write, failing = Membership.write, [True]

    def fails_once(self: Membership, member: Member) -> None:
        if failing and member.holds:
            failing.clear()
            raise OSError(28, "No space left on device")
        write(self, member)

    monkeypatch.setattr(Membership, "write", fails_once)
    a.ask()
    assert "No space left on device" in a.told.get(timeout=PATIENCE_S)  # it may try again at once
    a.ask()  # which wakes it
    assert a.gets().amounts == a.gets().amounts == CPU


def test_a_folder_that_others_can_open_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    with pytest.raises(InvalidConfig, match="nobody else can open"):
        MachineFolder(tmp_path / "open")
    (tmp_path / "mine").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    with pytest.raises(InvalidConfig, match="nobody else can open"):
        MachineFolder(tmp_path / "link")


def test_an_experiment_counts_until_its_last_worker_is_gone(tmp_path: Path) -> None:
    folder = MachineFolder(tmp_path / "machine")
    member = Member.here("a", shares=True, total=CPU, uses=CPU, gpus=())
    membership = Membership(folder, member)
    worker = os.open(folder.workers_file(membership.name), os.O_RDWR | os.O_CREAT)
    import fcntl

    fcntl.flock(worker, fcntl.LOCK_SH)
    membership.close_in_child()  # as when its script is killed
    assert [one.is_alive for one in folder.seen()] == [False]
    os.close(worker)
    assert folder.seen() == []
    assert not is_locked(folder.workers_file(membership.name))
    assert list(folder.path.iterdir()) == []
