"""Runs, kills and restores a user's script for a test, and checks the files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import field
from pathlib import Path
from typing import Any

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.layout import CONTROL
from holdfast.syncer.files.durable import TEMPORARY
from tests.rig import checker
from tests.rig.script import Gate, UserScript, read_notes
from tests.rig.storage.bucket import Bucket

# A short grace, frequent snapshots and syncs: otherwise a test would wait for them.
QUICK = {
    "HOLDFAST_TENSORBOARD": "1",
    "HOLDFAST_STOP_GRACE_S": "2",
    "HOLDFAST_FLUSH_DEADLINE_S": "10",
    "HOLDFAST_SNAPSHOT_PERIOD_S": "0.2",
    "HOLDFAST_FSYNC_PERIOD_S": "0.05",
}


def copy_of_live(root: Path, target: Path) -> Path:
    """A copy of a folder that a run writes to, without its socket, which Python's copytree cannot
    copy, and without files that are renamed meanwhile."""
    left_out = shutil.ignore_patterns(CONTROL, f"{TEMPORARY}*")
    return Path(shutil.copytree(root, target, ignore=left_out))


@dataclass
class Bench:
    """The runs of one experiment of a user's script; `options` are the same for each start.

    `script` takes its options as one JSON object. `environ` is for every process, `prefix` a
    command that starts the script. `stack` cleans up at the end.
    """

    folder: Path
    script: Path
    stack: ExitStack
    options: dict[str, Any] = field(default_factory=dict)
    environ: dict[str, str] = field(default_factory=dict)
    prefix: Sequence[str] = ()

    @property
    def storage(self) -> Path:
        return self.folder / "storage"

    @property
    def root(self) -> Path:
        return self.storage / "run"

    def use(self, bucket: Bucket, *, machine: str) -> Path:
        """Store the experiment in a bucket, and run it on a machine with this name from now on.

        That machine's disk has only what it has written itself. Returns the experiment there.
        """
        self.options["storage"] = bucket.storage_path
        self.environ |= bucket.environ
        self.environ["RAY_AIR_LOCAL_CACHE_DIR"] = str(self.folder / machine)
        return self.folder / machine / "run"

    def start(self, **options: Any) -> UserScript:
        """Run the script with these options in addition to `self.options`."""
        given = {"storage": str(self.storage), "epochs": 4, **self.options, **options}
        return self.run(self.script, json.dumps(given))

    def restore(self, resume: dict[str, Any] | None = None, **options: Any) -> UserScript:
        return self.start(restore=resume or {}, **options)

    def held_in(self, epoch: int, **options: Any) -> tuple[UserScript, Gate]:
        """Start, and wait until both trials wait before this epoch; the gate lets them
        continue."""
        gate = self.gate(f"any-{epoch}")
        script = self.start(**options)
        script.wait_for(f"at 0 {epoch}")
        script.wait_for(f"at 1 {epoch}")
        return script, gate

    def killed_in(self, epoch: int, *, in_step: bool = False, **options: Any) -> None:
        """The script was killed when both trials had reached this epoch; none of its processes is
        left.

        With `in_step` neither began an epoch before both had reached it.
        """
        before = [(at, self.gate(f"any-{at}")) for at in range(1, epoch) if in_step]
        gate = self.gate(f"any-{epoch}")
        script = self.start(**options)
        for at, held in [*before, (epoch, gate)]:
            script.wait_for(f"at 0 {at}")
            script.wait_for(f"at 1 {at}")
            if held is not gate:
                held.open()
        script.dies()
        gate.open()

    def run(self, path: Path, *arguments: str, cwd: Path | None = None) -> UserScript:
        script = UserScript(
            path,
            *arguments,
            folder=self.folder / "bench",
            environ=self.environ,
            cwd=cwd,
            prefix=self.prefix,
        )
        return self.stack.enter_context(script)

    def write(self, text: str, name: str = "script.py") -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def gate(self, name: str) -> Gate:
        gate = Gate(self.folder / "bench", name)
        self.stack.callback(gate.open)
        return gate

    def notes(self) -> list[dict[str, Any]]:
        return read_notes(self.folder / "bench")

    def problems(self, root: Path | None = None, **options: Any) -> list[str]:
        """The faults that an independent checker finds in the experiment's directory."""
        return checker.check(root or self.root, notes=self.notes(), **options)


@contextmanager
def workbench(folder: Path, script: Path) -> Iterator[Bench]:
    """A bench in its own folder; all its processes have ended afterwards."""
    with ExitStack() as stack:
        environ = {**QUICK, "HOME": str(folder / "home")}
        yield Bench(folder=folder, script=script, stack=stack, environ=environ)


def results(script: UserScript) -> list[dict[str, Any]]:
    """The results that the script printed, in the order of the trials."""
    script.finish_reading()
    for line in script.stdout.splitlines():
        if line.startswith("RESULTS "):
            found: list[dict[str, Any]] = json.loads(line.removeprefix("RESULTS "))
            return found
    raise AssertionError(f"the script printed no results: {script.stdout}\n{script.stderr}")


def epochs_of(script: UserScript) -> list[int]:
    """The last epoch of each trial, by the results that the script printed."""
    return [found["epoch"] for found in results(script)]
