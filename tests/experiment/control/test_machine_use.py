"""What a run says about other experiments on its machine."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from holdfast.experiment.control import machine_use
from holdfast.experiment.machine.fair_share import Member


class Folder:
    """A folder of the machine in which another experiment is."""

    def changing(self) -> Any:
        return threading.Lock()

    def members(self) -> dict[str, Member]:
        return {f"e{pid}": _member(pid) for pid in (1, 2)}


def _member(pid: int) -> Member:
    cpus = {"CPU": 4.0}
    return Member(
        pid=pid, command="", experiment=f"e{pid}", shares=False, total=cpus, uses=cpus, gpus=()
    )


def test_a_process_says_once_that_another_experiment_uses_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine_use, "_has_warned", threading.Event())
    said: list[str] = []
    for _ in range(2):
        machine_use._look_around(Folder(), _member(1), lambda text, level: said.append(text))  # type: ignore[arg-type]
    assert len(said) == 1
    assert "experiment 'e2' (process 2)" in said[0]
