"""Experiments of several scripts use one machine together, or say that they do not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rig.bench import Bench, workbench
from tests.rig.script import UserScript

pytestmark = pytest.mark.process

SCRIPT = Path(__file__).parent / "sharing_script.py"


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Bench]:
    with workbench(tmp_path, SCRIPT) as made:
        made.environ |= {"HOLDFAST_SHARE": "", "HOLDFAST_SHARE_DIR": str(tmp_path / "machine")}
        yield made
        left = [path.name for path in (tmp_path / "machine").iterdir() if path.name != "mutex"]
        assert left == []


def spans(bench: Bench) -> list[tuple[float, float]]:
    """When each trial of all experiments began and ended, by one clock."""
    return [(one["began"], one["ended"]) for one in bench.notes() if one["what"] == "ran"]


def most_at_once(several: list[tuple[float, float]]) -> int:
    changes = sorted([(at, 1) for at, _ in several] + [(at, -1) for _, at in several])
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


def start(bench: Bench, name: str, **options: Any) -> UserScript:
    return bench.start(name=name, **options)


@pytest.mark.parametrize("reuse", [False, True])
def test_two_scripts_share_two_cpus(machine: Bench, reuse: bool) -> None:
    gate, later = machine.gate("run"), machine.gate("one-later")
    one = start(machine, "one", trials=5, reuse=reuse)
    one.wait_for("began")
    one.wait_for("began")
    two = start(machine, "two", trials=5, reuse=reuse)
    line = two.said("waiting for")
    assert "experiment one) shares this machine" in line
    gate.open()
    # The others that the first one would start do not keep both from the one that has nothing.
    two.wait_for("began")
    later.open()
    one.succeeds()
    two.succeeds()
    assert len(spans(machine)) == 10
    assert most_at_once(spans(machine)) == 2


def test_what_a_killed_script_held_is_free_at_once(machine: Bench) -> None:
    gate = machine.gate("run")
    one = start(machine, "one", trials=2)
    one.wait_for("began")
    one.wait_for("began")
    two = start(machine, "two", trials=1)
    two.said("waiting for")
    killed_at = time.monotonic()
    one.dies()
    two.wait_for("began")
    gate.open()
    two.succeeds()
    ((began, _),) = spans(machine)
    assert began > killed_at


def test_several_fits_in_threads_and_one_in_a_trial_do_not_wait_for_themselves(
    machine: Bench,
) -> None:
    start(machine, "one", trials=1, threads=2).succeeds()
    assert most_at_once(spans(machine)) <= 2
    start(machine, "outer", trials=2, nested=True).succeeds()
    inner = [one for one in machine.notes() if one["name"] == "inner"]
    assert len(inner) == 2


def test_two_that_do_not_share_say_so(machine: Bench) -> None:
    gate = machine.gate("run")
    one = start(machine, "one", trials=2, share=False)
    one.wait_for("began")
    two = start(machine, "two", trials=2, share=False)
    line = two.said("runs here, too")
    assert f"experiment 'one' (process {one.process.pid})" in line
    assert "use 4 CPUs of 2" in line
    assert "HOLDFAST_SHARE=1 for both scripts" in line
    gate.open()
    one.succeeds()
    two.succeeds()
    assert "runs here, too" not in one.stderr
