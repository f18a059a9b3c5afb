"""The line about other experiments on the same machine."""

from __future__ import annotations

from dataclasses import replace

from holdfast.experiment.control import machine_use as message
from holdfast.experiment.machine.members import Member


def crowding(own: Member, others: list[Member], **found: float) -> str:
    return message.crowding(own, others, found)


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
        "experiment 'e2' (process 2) runs here, too: together they use 8 CPUs of 4. To take "
        "turns: HOLDFAST_SHARE=1 for both scripts"
    )


def test_it_says_where_the_number_is_from_if_the_machine_has_another_one() -> None:
    both = member(1, 4), [member(2, 4)]
    assert "use 8 CPUs of 4 (init's num_cpus). To take" in crowding(*both, CPU=2.0)
    assert "use 8 CPUs of 4. To take" in crowding(*both, CPU=4.0)
    another = replace(member(2, 4), total={"CPU": 6.0})
    told = crowding(member(1, 4), [another], CPU=4.0)
    assert "use 8 CPUs of 6 (from another script's init: num_cpus)" in told


def test_it_says_nothing_where_there_is_room_for_both() -> None:
    assert crowding(member(1, 2), [member(2, 2)]) == ""
    assert crowding(member(1, 4), []) == ""
    assert crowding(member(1, 1, gpus=("0",)), [member(2, 1, gpus=("1",))]) == ""
    shown = crowding(member(1, 1, gpus=("0",)), [member(2, 1, gpus=("0",))])
    assert "use 2 GPUs of 1." in shown


def test_it_says_nothing_if_they_take_turns() -> None:
    assert crowding(member(1, 4, shares=True), [member(2, 4, shares=True)]) == ""
    assert "for that script" in crowding(member(1, 4, shares=True), [member(2, 4)])
    assert "for this script" in crowding(member(1, 4), [member(2, 4, shares=True)])


def test_of_many_it_names_one_and_stays_short() -> None:
    text = crowding(member(1, 4), [member(n, 4) for n in range(2, 6)])
    assert "experiment 'e2' (process 2) and 3 more run here, too" in text
    long = replace(member(4194304, 1024), experiment="x" * 200)
    assert len(crowding(member(1, 4), [long])) <= 180
    usual = replace(member(4194304, 16), experiment="a-name-of-20-letters")
    assert len("warning: " + crowding(member(1, 4), [usual])) <= 160
