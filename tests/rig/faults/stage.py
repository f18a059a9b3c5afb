"""Runs the same small experiment again and again on a disk, and kills it or cuts its power."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.rig.bench import Bench, workbench
from tests.rig.faults import deaths, powercut
from tests.rig.faults.aftermath import Aftermath, Story, acknowledged_rows, has_begun, rows
from tests.rig.faults.mishaps import REMOVABLE, Crash, Cut, Refusal, Removal, Stop
from tests.rig.script import UserScript

EPOCHS = 3
_STOPPED_DEADLINE_S = "0.5"
# Trials of one run in so many have children that multiprocessing starts by spawn or forkserver:
# each takes about as long as a start of the run.
_ONE_IN = 8
_METHODS = {2: "spawn", 6: "forkserver"}
# Longer than workers and helpers are quick to answer, and than `holdfast.late` takes for a jump.
_SUSPENDED_S = 3.0
# After so many crashes, something is mounted inside the experiment and the commands remove.
_MOUNTS_EVERY = 10
GOES_ON = {"go_on": True, "wishes": {"resume_errored": True}}


class Stage:
    """Each run has a new folder. Several may run at once, in threads.

    `ranks`: this many workers train each trial together; 0 for trials of one worker.
    """

    def __init__(self, folder: Path, script: Path, ranks: int = 0) -> None:
        self.folder = folder
        self._ranks = ranks
        self._script = script
        self._runs = itertools.count(1)

    def measure(self, *, mirrored: bool) -> dict[str, int]:
        """How many operations each role performs in an undisturbed run."""
        with self.bench(mirrored=mirrored) as bench:
            fault = _armed(bench)
            bench.start().succeeds()
            return deaths.counts(Path(fault.folder))

    def crash(self, crash: Crash) -> Story:
        """Kill a run there, resume it, and check the result."""
        with self.bench(mirrored=crash.mirrored, at=crash.at) as bench:
            fault = _armed(
                bench, crash.role, crash.at, is_torn=crash.is_torn, victims=crash.victims
            )
            after = Aftermath(bench)
            after.ended(bench.start())
            del bench.environ[deaths.VARIABLE]
            after.finishes(bench.start(**GOES_ON))
            after.holds(_trees(bench), bench.notes())
            if not crash.at % _MOUNTS_EVERY:
                after.keeps_what_is_mounted(_trees(bench))
            return after.story(crash, deaths.fired(Path(fault.folder)))

    def stop(self, stop: Stop) -> Story:
        """Stop a process there: the run must succeed by itself."""
        with self.bench(mirrored=stop.mirrored, at=stop.at) as bench:
            fault = _armed(
                bench, stop.role, stop.at, victims=(stop.victim,), signum=signal.SIGSTOP
            )
            bench.environ["HOLDFAST_STOPPED_DEADLINE_S"] = _STOPPED_DEADLINE_S
            after = Aftermath(bench)
            after.checked["a run comes to a good end though a process of it was stopped"] += 1
            script = bench.start()
            if stop.victim == "script":
                _continue_later(script)
            after.finishes(script)
            after.holds(_trees(bench), bench.notes())
            return after.story(stop, deaths.fired(Path(fault.folder)))

    def remove(self, removal: Removal) -> Story:
        """Remove something during a run: it reports that, or has lost nothing.

        What was removed is put back, and the experiment continued.
        """
        with self.bench(mirrored=removal.mirrored) as bench:
            root = _trees(bench)[-1]
            removes = str(root / REMOVABLE[removal.what]).rstrip("/")
            fault = _armed(bench, removal.role, removal.at, removes=removes)
            after = Aftermath(bench)
            code = after.ended(bench.start())
            known, acknowledged = rows(root), acknowledged_rows(bench.notes())
            if code == 0:
                after.checked["a run that ended well has its rows under its name"] += 1
                for row in sorted(acknowledged - known):
                    after.wrong(f"a run that ended well has lost a row: {row}")
            else:
                after.checked["a run that something was removed from says so"] += 1
                after.says(("removed", "put in its place", "No such file"))
            del bench.environ[deaths.VARIABLE]
            aside = deaths.removed(Path(fault.folder))
            # A folder that was removed before anything was in it is no experiment to be put back
            # in place of the one that has ended well.
            if code or removes != str(root) or has_begun(aside / root.name):
                _put_back(aside, Path(fault.removes))
            goes_on = GOES_ON if has_begun(root) else {}
            # A checkpoint that was missing for a moment is dropped and reported. One that was made
            # in the place of the removed folder is in storage only, or lost with that place.
            after.finishes(bench.start(**goes_on), may_lose=True)
            notes = after.without_told_losses(bench.notes())
            after.holds(_trees(bench), notes, storage=bench.root)
            return after.story(removal, deaths.fired(Path(fault.folder)))

    @contextmanager
    def recorded(self) -> Iterator[powercut.Recording]:
        """A run whose fsyncs are all recorded."""
        with self.bench() as bench:
            bench.storage.mkdir()
            bench.environ |= powercut.environ_for(bench.folder / "recorded", bench.storage)
            script = bench.start().succeeds()
            assert script.left() == []
            yield powercut.Recording(bench.folder / "recorded", bench.storage)

    def lose_power(self, recording: powercut.Recording, cut: Cut) -> Story:
        """Resume from what the cut leaves, on a machine that was rebooted."""
        with self.bench() as bench:
            chance = None if cut.luck is None else random.Random(f"{cut.after} {cut.luck}")
            recording.after(cut.after, bench.storage, chance)
            durable = rows(bench.root)
            bench.environ |= powercut.rebooted("another boot of this machine")
            after = Aftermath(bench)
            after.finishes(bench.start(**GOES_ON), may_lose=True)
            after.holds(_trees(bench), notes=())
            after.checked["a row that was on the disk is in the journal"] += len(durable)
            for row in sorted(durable - rows(bench.root)):
                after.wrong(f"was on the disk and is lost: {row}")
            return after.story(cut, str(cut))

    def refuse(self, refusal: Refusal) -> Story:
        """Refuse an fsync, cut the power when the run has ended, and resume.

        The acknowledged rows of a successful run are on the disk, and a failed one says why.
        """
        with self.bench() as bench:
            bench.storage.mkdir()
            records = bench.folder / "recorded"
            bench.environ |= powercut.environ_for(
                records, bench.storage, refused=refusal.at, times=refusal.times
            )
            after = Aftermath(bench)
            code = after.ended(bench.start())
            known = rows(bench.root)
            fell_on = ", ".join(powercut.refusals(records))
            recording = powercut.Recording(records, bench.storage)
            shutil.rmtree(bench.storage)
            chance = None if refusal.luck is None else random.Random(f"{refusal}")
            recording.after(len(recording.moments), bench.storage, chance)
            left = rows(bench.root)
            if code == 0:
                after.checked["a row of a run that ended well is on the disk"] += len(known)
                for row in sorted(known - left):
                    after.wrong(f"a run that ended well has lost a row: {row}")
            else:
                after.checked["a run that ends by a disk says so"] += 1
                after.says(("to the disk", "Input/output error"))
            del bench.environ[powercut.VARIABLE]
            bench.environ |= powercut.rebooted("another boot of this machine")
            goes_on = GOES_ON if has_begun(bench.root) else {}
            after.finishes(bench.start(**goes_on), may_lose=True)
            after.holds(_trees(bench), notes=())
            return after.story(refusal, fell_on)

    @contextmanager
    def bench(self, *, mirrored: bool = False, at: int = 0) -> Iterator[Bench]:
        """The place where one run is started and resumed. `at` is the operation that a fault will
        meet."""
        folder = self.folder / f"run-{next(self._runs)}"
        folder.mkdir(parents=True)
        with workbench(folder, self._script) as bench:
            bench.options |= {"epochs": EPOCHS, "num_to_keep": 1, "artifacts": True}
            if method := _METHODS.get(at % _ONE_IN):
                bench.options["children"] = method
            bench.options["outside"] = str(folder / "outside")
            if self._ranks:
                bench.options["ranks"] = self._ranks
            if mirrored:
                bench.options["sync_artifacts"] = True
                bench.environ["RAY_AIR_LOCAL_CACHE_DIR"] = str(folder / "here")
            yield bench
        shutil.rmtree(folder)


@contextmanager
def in_memory(script: Path, ranks: int = 0) -> Iterator[Stage]:
    """A stage where a new file never has the inode number of one that is gone."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="holdfast-") as folder:
        yield Stage(Path(folder), script, ranks)


def _continue_later(script: UserScript) -> None:
    """Let the script be suspended for a while, once it is."""
    with suppress(ChildProcessError):  # it has ended
        os.waitid(os.P_PID, script.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    time.sleep(_SUSPENDED_S)
    script.signal(signal.SIGCONT)


def _put_back(aside: Path, place: Path) -> None:
    """Put it back in place of what a run may have created since; `place` may end with a
    pattern."""
    for removed in aside.iterdir() if aside.exists() else ():
        target = place.parent / removed.name
        if target.is_dir():
            shutil.rmtree(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        removed.replace(target)


def _armed(bench: Bench, role: str = "script", at: int = 0, **how: Any) -> deaths.Fault:
    """The fault of every process of the bench from now on; without `at` they only count.

    `how` are further fields of a Fault.
    """
    fault = deaths.Fault(
        folder=str(bench.folder / "counting"),
        roots=[str(bench.storage), str(bench.folder / "here")],
        role=role,
        at=at,
        **how,
    )
    bench.environ |= deaths.environ_for(fault)
    return fault


def _trees(bench: Bench) -> list[Path]:
    """The experiment's folders: in the storage, and in the directory that it works in."""
    here = bench.folder / "here" / "run"
    return [bench.root, here] if "RAY_AIR_LOCAL_CACHE_DIR" in bench.environ else [bench.root]
