"""A full disk: reports fail with a clear error, and acknowledged rows are there once it has
room."""

from __future__ import annotations

import os
import re
import resource
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.rig.bench import Bench, epochs_of, results
from tests.rig.nightly import rest_nightly
from tests.rig.script import UserScript

pytestmark = pytest.mark.process


def mount(path: Path) -> bool:
    path.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(path)]
    return subprocess.run(command, capture_output=True).returncode == 0


@dataclass
class Disk:
    """A small file system if mounting is allowed, otherwise a limit on all writes."""

    path: Path
    is_mounted: bool

    def fill(self, script: UserScript) -> None:
        if not self.is_mounted:
            for process in script.processes():
                _, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, hard))
            return
        with pytest.raises(OSError, match="No space left"):
            self._fill_up()

    def _fill_up(self) -> None:
        with self.filler.open("wb", 0) as file:
            while True:
                file.write(bytes(1 << 12))

    def free(self) -> None:
        if self.is_mounted:
            self.filler.unlink()

    @property
    def filler(self) -> Path:
        return self.path / "filler"


@pytest.fixture(params=rest_nightly(1, ["small", "limited"]))
def disk(request: pytest.FixtureRequest, bench: Bench) -> Iterator[Disk]:
    path = bench.folder / "disk"
    is_mounted = request.param == "small" and mount(path)
    path.mkdir(exist_ok=True)
    bench.options["storage"] = str(path)
    yield Disk(path, is_mounted)
    bench.stack.close()
    if is_mounted:
        subprocess.run(["umount", str(path)], check=True)


def test_a_full_disk_fails_the_report_and_fit_and_loses_nothing(bench: Bench, disk: Disk) -> None:
    bench.environ["HOLDFAST_FLUSH_DEADLINE_S"] = "1"  # for checkpoints that never arrive
    # A row larger than the rest of the journal's last page, which is allocated already.
    script, gate = bench.held_in(3, checkpoint_every=2, padding=20_000)
    disk.fill(script)
    gate.open()
    assert script.ends() == 1
    script.finish_reading()
    assert "append to the journal" in script.stderr
    assert re.search(r"Free some disk space, then resume: .*holdfast resume /", script.stderr)
    _, shown = script.stderr.split("Traceback (most recent call last):\n")
    assert re.findall(r'^  File "(.+)", line', shown, re.M) == [str(bench.script)] * 2
    assert script.left() == []
    acknowledged = [n["iteration"] for n in bench.notes() if n["what"] == "acknowledged"]
    assert sorted(acknowledged) == [1, 1, 2, 2]
    disk.free()
    del bench.environ["HOLDFAST_FLUSH_DEADLINE_S"]
    assert epochs_of(bench.restore(checkpoint_every=2).succeeds()) == [4, 4]
    assert bench.problems(disk.path / "run", tensorboard=True) == []


def test_a_checkpoint_that_does_not_fit_is_an_error_of_its_trial(bench: Bench, disk: Disk) -> None:
    if disk.is_mounted:
        # One at a time: while one fills the disk, the journal cannot store the other's row.
        big = {"checkpoint_bytes": 5 << 20, "samples": 1, "at_once": 1}
        script = bench.start(**big).succeeds()
        errors = [found["error"] for found in results(script)]
        assert all("No space left" in error for error in errors)
        assert all("Free some space" in error for error in errors)
        assert not list((disk.path / "run").glob("*/checkpoint_*"))
        assert not list((disk.path / "run").glob("*/.staging/*"))
        restored = bench.restore({"resume_errored": True}).succeeds()
    else:
        script, gate = bench.held_in(3)
        for worker in script.processes("worker"):
            _, hard = resource.prlimit(worker.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (0, hard))
        gate.open()
        script.succeeds()
        errors = [found["error"] for found in results(script)]
        assert all(os.strerror(27) in error for error in errors)  # EFBIG, in the user's own file
        restored = bench.restore({"resume_errored": True}).succeeds()
    assert epochs_of(restored) == [4, 4]
    assert bench.problems(disk.path / "run", tensorboard=True) == []
