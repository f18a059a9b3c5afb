"""Disks that are full, read-only or emptied: clear errors, and acknowledged rows are kept."""

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

READ_ONLY = """
import ctypes, os, sys
from holdfast import tune

def train(config):
    tune.report({"x": config["x"]})
    if config["x"] == 0:
        os.chmod("..", 0o555)

if __name__ == "__main__":
    if os.getuid() == 0:  # permissions do not count for root with CAP_DAC_OVERRIDE
        libc, header = ctypes.CDLL(None), (ctypes.c_uint32 * 2)(0x20080522, 0)
        for capability in (1, 2):  # for programs that start later
            if libc.prctl(24, capability, 0, 0, 0):
                sys.exit("cannot drop a capability")
        if libc.capset(header, (ctypes.c_uint32 * 6)()):  # for this process
            sys.exit("cannot drop a capability")
    tuner = tune.Tuner(
        tune.with_resources(train, {"cpu": 1}),
        param_space={"x": tune.grid_search([0, 1, 2, 3])},
        tune_config=tune.TuneConfig(max_concurrent_trials=1),
        run_config=tune.RunConfig(name="run", storage_path=sys.argv[1]),
    )
    print([result.metrics["x"] for result in tuner.fit(resume="auto")])
"""


def test_a_read_only_results_folder_stops_the_run_and_fails_no_trial(bench: Bench) -> None:
    path = bench.write(READ_ONLY, "own.py")
    script = bench.run(path, str(bench.storage))
    code = script.ends()
    script.finish_reading()
    if "cannot drop a capability" in script.stderr:
        pytest.skip("root needs CAP_SETPCAP to give up its power over permissions")
    assert code == 1
    assert "cannot write the trial's folder" in script.stderr
    assert "Permission denied. The run has stopped, and no trial has failed by this" in (
        script.stderr
    )
    assert re.search(r"then resume: .*holdfast resume .*/run\n", script.stderr)
    assert "trial_directory.py" not in script.stderr
    bench.root.chmod(0o755)
    again = bench.run(path, str(bench.storage)).succeeds()
    again.finish_reading()
    assert again.stdout == "[0, 1, 2, 3]\n"


REMOVED = """
import os, shutil, sys, time
from holdfast import tune

def remove_tree(root):
    while os.path.exists(root):  # something may be written there just now
        shutil.rmtree(root, ignore_errors=True)

def remove(root, what):
    journal = os.path.join(root, "journal")
    segment = os.path.join(journal, "000000.log")
    if what == "experiment":
        remove_tree(root)
    elif what == "journal":
        remove_tree(journal)
    elif what == "renamed":
        os.rename(journal, journal + "-elsewhere")
    elif what == "segment":
        os.unlink(segment)
    elif what == "replaced":
        shutil.copy(segment, segment + "-copy")
        os.replace(segment + "-copy", segment)
    elif what == "recreated":
        remove_tree(journal)
        os.mkdir(journal)
        with open(segment, "wb") as file:
            file.write(b"HFJRNL\\0\\1")

def train(config):
    tune.report({"value": 0})
    remove(config["root"], config["what"])
    tune.report({"value": 1})
    while config["endless"]:
        tune.report({"value": 2})
        time.sleep(0.01)

if __name__ == "__main__":
    storage, what, endless = sys.argv[1:]
    space = {"root": storage + "/run", "what": what, "endless": endless == "endless"}
    tune.Tuner(train, param_space=space, run_config=tune.RunConfig(
        storage_path=storage, name="run", verbose=0)).fit()
"""


@pytest.mark.parametrize(
    "what",
    rest_nightly(2, ["experiment", "segment", "journal", "renamed", "replaced", "recreated"]),
)
def test_a_run_whose_journal_is_taken_away_ends_with_an_error_that_says_so(
    bench: Bench, what: str
) -> None:
    bench.environ["HOLDFAST_FSYNC_PERIOD_S"] = "0.05"
    script = bench.run(bench.write(REMOVED), str(bench.storage), what, "endless")
    assert script.ends() == 1
    script.finish_reading()
    assert "while the run wrote to it" in script.stderr
    assert "journal/000000.log" in script.stderr
    assert script.left() == []


@pytest.mark.parametrize("what", rest_nightly(1, ["experiment", "journal"]))
def test_it_is_noticed_at_the_end_of_the_run_at_the_latest(bench: Bench, what: str) -> None:
    bench.environ["HOLDFAST_FSYNC_PERIOD_S"] = "3600"
    script = bench.run(bench.write(REMOVED), str(bench.storage), what, "ends")
    assert script.ends() == 1
    script.finish_reading()
    assert "while the run wrote to it" in script.stderr


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
