"""The contract of what trials take resources from, and the files of experiments that share one
machine."""

from __future__ import annotations

import fcntl
import os
import queue
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.experiment.control.machine_use import crowding
from holdfast.experiment.machine.fair_share import CapacityRequest, CapacityShare, Member
from holdfast.experiment.machine.machine_share import (
    MachineFolder,
    MachineShare,
    Membership,
    member_here,
)
from holdfast.experiment.workers.shared_machines import RunMachines, SharedMachines
from holdfast.trial.errors import InvalidConfig
from holdfast.trial.resources import Allocation
from tests.rig.workers.processes import PATIENCE_S, count_fds

CPU = {"CPU": 1.0}


class Experiment:
    """What it has been granted, of a share."""

    def __init__(self, share: CapacityShare) -> None:
        self.share = share
        self.granted: queue.SimpleQueue[Allocation] = queue.SimpleQueue()

    def ask(self, amounts: Mapping[str, float] = CPU) -> CapacityRequest | Allocation:
        asked = self.share.take(Allocation(amounts=amounts), self.granted.put)
        if isinstance(asked, Allocation):
            self.granted.put(asked)
        return asked

    def gets(self, amounts: Mapping[str, float] | None = None) -> Allocation:
        if amounts is not None:
            self.ask(amounts)
        return self.granted.get(timeout=PATIENCE_S)

    def waits(self, amounts: Mapping[str, float] = CPU) -> CapacityRequest:
        """Ask in vain."""
        asked = self.ask(amounts)
        assert isinstance(asked, CapacityRequest)
        return asked


class Sharing(Experiment):
    """One that shares the machine by files."""

    def __init__(self, folder: MachineFolder, name: str, cpus: float, gpus: Sequence[str]) -> None:
        total = {"CPU": cpus, **({"GPU": float(len(gpus))} if gpus else {})}
        member = member_here(name, shares=True, total=total, uses=total, gpus=gpus)
        self.told: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.by_files = MachineShare(folder, member, self.told.put)
        super().__init__(self.by_files)

    def waits(self, amounts: Mapping[str, float] = CPU) -> CapacityRequest:
        asked = super().waits(amounts)
        assert "shares this machine" in self.told.get(timeout=PATIENCE_S)
        assert self.granted.empty()
        return asked


class Machine:
    def __init__(self, path: Path, stack: ExitStack) -> None:
        self.folder = MachineFolder(path)
        self.stack = stack

    def starts(self, name: str, *, cpus: float = 2, gpus: Sequence[str] = ()) -> Sharing:
        made = Sharing(self.folder, name, cpus, gpus)
        self.stack.callback(made.by_files.close)
        return made


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    before = count_fds()
    with ExitStack() as stack:
        yield Machine(tmp_path / "machine", stack)
    assert os.listdir(tmp_path / "machine") in ([], ["mutex"])
    assert count_fds() == before


Starts = Callable[..., Experiment]


@pytest.fixture(params=["one process", "files"])
def starts(request: pytest.FixtureRequest, machine: Machine) -> Starts:
    """Starts an experiment on one machine."""
    if request.param == "files":
        return machine.starts
    shared = SharedMachines()

    def make(name: str, *, cpus: float = 2, gpus: Sequence[str] = ()) -> Experiment:
        return Experiment(RunMachines(shared, {"CPU": cpus, "GPU": float(len(gpus))}))

    return make


def test_one_waits_until_another_gives_back(starts: Starts) -> None:
    a, b = starts("a", cpus=1), starts("b", cpus=1)
    held = a.gets(CPU)
    b.waits()
    assert not b.share.has_room(CPU)
    a.share.give_back(held)
    assert b.gets().amounts == CPU


def test_a_large_request_is_not_starved_by_a_small_one_that_comes_later(starts: Starts) -> None:
    a, large, small = (starts(name) for name in ("a", "large", "small"))
    held = a.gets(CPU)
    large.waits({"CPU": 2.0})
    small.ask()
    a.share.give_back(held)
    assert large.gets().amounts == {"CPU": 2.0}


def test_a_withdrawn_request_lets_the_next_one_pass(starts: Starts) -> None:
    a, large, small = (starts(name) for name in ("a", "large", "small"))
    a.gets(CPU)
    request = large.waits({"CPU": 2.0})
    small.waits()
    assert large.share.cancel(request)
    assert not large.share.cancel(request)
    small.gets()


def test_who_needs_nothing_waits_for_no_one(starts: Starts) -> None:
    a = starts("a", cpus=1)
    a.gets(CPU)
    a.ask()
    assert isinstance(a.ask({"CPU": 0}), Allocation)


def test_each_experiment_gets_gpus_that_no_other_has(starts: Starts) -> None:
    a, b = starts("a", gpus=["0", "1"]), starts("b", gpus=["0", "1"])
    assert {a.gets({"GPU": 1.0}).gpus, b.gets({"GPU": 1.0}).gpus} == {(0,), (1,)}


def test_parts_of_a_gpu_add_up_and_each_one_is_known_by_its_name(machine: Machine) -> None:
    a = machine.starts("a", gpus=["0", "1"])
    b = machine.starts("b", gpus=["1"])
    assert a.gets({"GPU": 1.0}).gpus == (0,)
    assert b.gets({"GPU": 0.5}).gpus == (0,)  # the first that it knows is the machine's second
    assert a.gets({"GPU": 0.5}).gpus == (1,)
    b.waits({"GPU": 0.25})


def test_what_an_experiment_held_is_free_when_it_leaves(machine: Machine) -> None:
    a, b = machine.starts("a"), machine.starts("b")
    a.gets(CPU), a.gets(CPU)
    b.waits({"CPU": 2.0})
    a.by_files.close()
    assert b.gets().amounts == {"CPU": 2.0}


def test_an_experiment_counts_until_its_last_worker_is_gone(machine: Machine) -> None:
    member = member_here("a", shares=True, total=CPU, uses=CPU, gpus=())
    membership = Membership(machine.folder, member)
    worker = os.open(membership.lock_file, os.O_RDWR)
    fcntl.flock(worker, fcntl.LOCK_SH)
    membership.close_in_child()  # as when its script is killed
    assert list(machine.folder.members()) == [membership.name]
    os.close(worker)
    assert machine.folder.members() == {}


def test_a_file_that_no_version_has_written_is_passed_over(machine: Machine) -> None:
    a = machine.starts("a")
    other = member_here("b", shares=True, total=CPU, uses=CPU, gpus=())
    membership = Membership(machine.folder, other)
    (machine.folder.path / f"{membership.name}.json").write_text('{"format": 99, "pid": -4}')
    a.gets(CPU)
    membership.close()


@pytest.mark.parametrize("left", ["", ".lock", ".json"])
def test_what_a_cleaner_of_old_files_removes_is_written_again(machine: Machine, left: str) -> None:
    a, b = machine.starts("a", cpus=1), machine.starts("b", cpus=1)
    with machine.folder.changing():  # nobody writes meanwhile: what is new is no old file
        for path in machine.folder.path.iterdir():
            if path.suffix != left:
                path.unlink(missing_ok=True)
    a.gets(CPU)
    b.waits()


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
    assert "No space left on device" in a.told.get(timeout=PATIENCE_S)
    assert a.gets().amounts == CPU  # it tries again


def test_a_folder_that_others_can_open_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    with pytest.raises(InvalidConfig, match="nobody else can open"):
        MachineFolder(tmp_path / "open")
    (tmp_path / "mine").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    with pytest.raises(InvalidConfig, match="nobody else can open"):
        MachineFolder(tmp_path / "link")


# -- the line about others that do not share ----------------------------------------------------


def member(pid: int, cpus: float, *, shares: bool = False, gpus: tuple[str, ...] = ()) -> Member:
    return Member(
        pid=pid,
        command="python train.py",
        experiment=f"e{pid}",
        shares=shares,
        total={"CPU": 4.0},
        uses={"CPU": cpus, "GPU": float(len(gpus))},
        gpus=gpus,
    )


TWO = member(2, 4)
SHARES = member(1, 4, shares=True)


@pytest.mark.parametrize(
    ("own", "others", "found", "said"),
    [
        (member(1, 4), [TWO], {}, "e2' (process 2) runs here, too: together they use 8 CPUs of 4"),
        (member(1, 4), [TWO], {}, "To take turns: HOLDFAST_SHARE=1 for both scripts"),
        (member(1, 4), [TWO], {"CPU": 2.0}, "use 8 CPUs of 4 (init's num_cpus). To take"),
        (
            member(1, 4),
            [replace(TWO, total={"CPU": 6.0})],
            {"CPU": 4.0},
            "use 8 CPUs of 6 (from another script's init: num_cpus)",
        ),
        (member(1, 1, gpus=("0",)), [member(2, 1, gpus=("0",))], {}, "use 2 GPUs of 1."),
        (SHARES, [TWO], {}, "for that script"),
        (member(1, 4), [replace(TWO, shares=True)], {}, "for this script"),
        (member(1, 4), [member(n, 4) for n in range(2, 6)], {}, "(process 2) and 3 more run here"),
    ],
)
def test_a_machine_without_room_for_all_is_named_with_what_to_do(
    own: Member, others: list[Member], found: Mapping[str, float], said: str
) -> None:
    assert said in crowding(own, others, found)


@pytest.mark.parametrize(
    ("own", "others"),
    [
        (member(1, 2), [member(2, 2)]),
        (member(1, 4), []),
        (member(1, 1, gpus=("0",)), [member(2, 1, gpus=("1",))]),
        (SHARES, [replace(TWO, shares=True)]),
    ],
)
def test_where_there_is_room_or_all_take_turns_it_says_nothing(
    own: Member, others: list[Member]
) -> None:
    assert crowding(own, others, {}) == ""


def test_the_line_stays_short() -> None:
    long = replace(member(4194304, 1024), experiment="x" * 200)
    assert len(crowding(member(1, 4), [long], {})) <= 180
