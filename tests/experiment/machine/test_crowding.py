"""The line about other experiments on the same machine."""

from __future__ import annotations

from dataclasses import replace

from holdfast.experiment.machine.crowding import crowding
from holdfast.experiment.machine.members import Member


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


def test_it_names_the_other_one_and_what_to_do() -> None:
    assert crowding(member(1, 4), [member(2, 4)]) == (
        "experiment e2 (process 2) also runs on this machine, both use 8 of its 4 CPUs at once. "
        "To take turns, set HOLDFAST_SHARE=1 or call holdfast.init(share=True) in both"
    )


def test_it_says_nothing_where_there_is_room_for_both() -> None:
    assert crowding(member(1, 2), [member(2, 2)]) == ""
    assert crowding(member(1, 4), []) == ""
    assert crowding(member(1, 1, gpus=("0",)), [member(2, 1, gpus=("1",))]) == ""
    assert "2 of its 1 GPU at" in crowding(member(1, 1, gpus=("0",)), [member(2, 1, gpus=("0",))])


def test_it_says_nothing_if_they_take_turns() -> None:
    assert crowding(member(1, 4, shares=True), [member(2, 4, shares=True)]) == ""
    assert "in that script" in crowding(member(1, 4, shares=True), [member(2, 4)])
    assert "in this script" in crowding(member(1, 4), [member(2, 4, shares=True)])


def test_of_many_it_names_one_and_stays_short() -> None:
    text = crowding(member(1, 4), [member(n, 4) for n in range(2, 6)])
    assert "experiment e2 (process 2) and 3 more also run" in text
    long = replace(member(4194304, 1024), experiment="x" * 200)
    assert len(crowding(member(1, 4), [long])) <= 205
