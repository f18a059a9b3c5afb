"""A disk that does not answer: an fsync that never returns, in each process that calls it."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.bench import Bench, epochs_of, workbench
from tests.rig.faults import silent_disk
from tests.rig.nightly import rest_nightly
from tests.rig.script import UserScript

pytestmark = [pytest.mark.process, pytest.mark.rest]

QUICK = {"HOLDFAST_DISK_DEADLINE_S": "1", "HOLDFAST_FLUSH_DEADLINE_S": "2"}


@pytest.fixture
def bench() -> Iterator[Bench]:
    """On a disk in memory, if there is one: it always answers within the short deadline."""
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with (
        tempfile.TemporaryDirectory(dir=memory, prefix="holdfast-") as folder,
        workbench(Path(folder), Path(__file__).parents[1] / "user_script.py") as made,
    ):
        yield made


def falls_silent(bench: Bench, role: str, **environ: str) -> UserScript:
    """The disk stops answering this role while both trials wait before their third epoch."""
    bench.environ |= {**QUICK, **environ, **silent_disk.environ_for(bench.storage, [role])}
    script, training = bench.held_in(3)
    bench.gate(silent_disk.GATE)
    training.open()
    script.wait_for(f"silent {role}")
    return script


def goes_on(bench: Bench) -> None:
    """The disk answers again: a restore finishes, and no acknowledged row is missing."""
    for name in (silent_disk.VARIABLE, "HOLDFAST_DISK_DEADLINE_S"):
        bench.environ.pop(name)
    bench.environ["HOLDFAST_FLUSH_DEADLINE_S"] = "60"
    assert epochs_of(bench.restore().succeeds()) == [4, 4]
    assert bench.problems(tensorboard=True) == []


def test_a_journal_whose_disk_is_silent_ends_the_run(bench: Bench) -> None:
    script = falls_silent(bench, "script")
    assert script.ends() == 1
    assert script.left() == []
    script.finish_reading()
    assert "the disk has not answered for 0.5 s: fdatasync of" in script.stderr
    last = script.stderr.strip().splitlines()[-1]
    assert "force to the disk" in last
    assert "the disk has not answered for 1 s" in last
    assert "Restore once the disk" in last
    goes_on(bench)


@pytest.mark.parametrize("times", rest_nightly(1, [2, 1]))
def test_a_ctrl_c_ends_a_run_whose_disk_is_silent(bench: Bench, times: int) -> None:
    script = falls_silent(bench, "script", HOLDFAST_DISK_DEADLINE_S="100000")
    script.signal(signal.SIGINT)
    script.said("Press Ctrl-C again")
    if times > 1:
        script.signal(signal.SIGINT)
    assert script.ends() == -signal.SIGINT
    assert script.left() == []
    goes_on(bench)


def test_a_disk_that_is_silent_from_the_start_ends_fit(bench: Bench) -> None:
    bench.environ |= {**QUICK, **silent_disk.environ_for(bench.storage, ["script"])}
    bench.gate(silent_disk.GATE)
    script = bench.start()
    assert script.ends() == 1
    script.finish_reading()
    assert "the disk has not answered for 0.5 s" in script.stderr
    assert "storage/run: the disk has not answered for 1 s. Choose another" in script.stderr


def test_a_ctrl_c_ends_a_script_that_waits_for_its_disk_before_the_run(bench: Bench) -> None:
    bench.environ |= silent_disk.environ_for(bench.storage, ["script"])
    bench.gate(silent_disk.GATE)
    script = bench.start()
    script.wait_for("silent script")
    script.signal(signal.SIGINT)
    assert script.ends() == -signal.SIGINT
    assert script.left() == []


def test_a_run_that_hangs_with_its_disk_is_left_after_the_third_ctrl_c(bench: Bench) -> None:
    """The loop itself waits for the disk, and handles nothing."""
    bench.environ |= silent_disk.environ_for(bench.root / "journal", ["script"])
    bench.gate(silent_disk.GATE)
    script = bench.start()
    script.wait_for("silent script")
    for told in ("Press Ctrl-C again", "to leave processes that hang", ""):
        script.signal(signal.SIGINT)
        script.said(told)
    assert script.ends() == -signal.SIGINT
    assert script.left() == []
    script.finish_reading()
    assert "stays locked until this process ends" in script.stderr


def test_a_checkpoint_whose_disk_is_silent_is_not_kept_and_the_run_ends(bench: Bench) -> None:
    script = falls_silent(bench, "uploader")
    assert script.ends() == 1
    assert script.left() == []
    script.finish_reading()
    assert "the disk has not answered for 0.5 s" in script.stderr
    assert "is not kept" in script.stderr
    goes_on(bench)


def test_a_projector_whose_disk_is_silent_takes_nothing_from_the_run(bench: Bench) -> None:
    script = falls_silent(bench, "projector")
    assert script.ends() == 0
    assert script.left() == []
    assert epochs_of(script) == [4, 4]
    assert "the disk has not answered for 0.5 s" in script.stderr
    goes_on(bench)
