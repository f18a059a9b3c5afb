"""How everything is measured: new processes, in turns with the reference."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

SCRIPTS = Path(__file__).resolve().parent / "scripts"
OURS, REFERENCE = "ours", "reference"
# Some libraries take half a minute.
_RAYS_RUNS = 3
# Each script says where results go; the caller's shell must not change that.
_DROPPED = ("RAY_AIR_LOCAL_CACHE_DIR", "RAY_STORAGE", "HOLDFAST_DEBUG",
            # Without .pyc files each process would compile all that it imports.
            "PYTHONDONTWRITEBYTECODE")  # fmt: skip
MIB = 1 << 20


class ScriptFailed(Exception):
    """A measured script ended with an error; the message has the end of its stderr."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The cost of a process. `cpu_s` is user and system time, with children that it waited for.

    `began_s` is read from the monotonic clock, which all processes share, just before the start.
    `told` is the JSON in its last line of output.
    """

    began_s: float
    wall_s: float
    cpu_s: float
    told: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """How to run a benchmark: `runs` turns, smaller if `quick`, the full size if `long`.
    `with_optuna`: compare the page with optuna-dashboard.

    `root` is a directory on the disk to measure, removed at the end.
    """

    root: Path
    runs: int = 5
    quick: bool = False
    long: bool = False
    with_optuna: bool = False
    ray_python: str | None = None
    say: Callable[[str], None] = field(default=lambda text: print(text, file=sys.stderr))

    def size(self, usual: int, quick: int) -> int:
        return quick if self.quick else usual

    def scratch(self) -> Path:
        """A new directory, which exists until the end.

        For a minute after an inode was deleted, ext4 does not reuse it and searches past it. If
        files were deleted between two runs, each new file would cost ten times as much in the
        second one.
        """
        return Path(tempfile.mkdtemp(dir=self.root))

    def interleaved(
        self, contenders: Mapping[str, Callable[[], T]], *, warm: bool = False
    ) -> dict[str, list[T]]:
        """Take turns, A B A B, so that a temporary disturbance of the machine affects all of them.

        `warm` begins with a turn that is not counted.
        """
        samples: dict[str, list[T]] = {name: [] for name in contenders}
        for turn in range(-1 if warm else 0, self.runs):
            for name, measure in contenders.items():
                sample = measure()
                if turn >= 0:
                    samples[name].append(sample)
        return samples

    def with_ray(self, measure: Callable[[str], T]) -> list[T]:
        """Measure with Ray's Python, if there is one; not in turns with the others.

        Its daemons end some time after its scripts, and would disturb the next measurement.
        """
        if self.ray_python is None:
            return []
        return [measure(self.ray_python) for _ in range(min(self.runs, _RAYS_RUNS))]


def script(name: str, *arguments: object, python: str = sys.executable) -> list[str]:
    """The command of a script in the folder `scripts`: `script("storage/upload", ...)`."""
    return [python, str(SCRIPTS / f"{name}.py"), *(str(argument) for argument in arguments)]


def environment(**changed: str) -> dict[str, str]:
    """This process's environment without variables that would change results, and with TensorBoard
    off."""
    kept = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    return {**kept, "HOLDFAST_TENSORBOARD": "0", **changed}


def finish(command: Sequence[str], **environ: str) -> Finished:
    """Run a command to its end. Raises ScriptFailed."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        began_s = time.monotonic()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment(**environ)
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.monotonic() - began_s
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if process.returncode:
            text = err.read().decode(errors="replace")[-3000:]
            raise ScriptFailed(f"{' '.join(command)} ended with {process.returncode}:\n{text}")
        return Finished(
            began_s=began_s,
            wall_s=wall_s,
            cpu_s=usage.ru_utime + usage.ru_stime,
            told=_last_line(out.read()),
        )


def settle() -> None:
    """Wait for the disk's pending writes, which would slow down the next measurement."""
    os.sync()


def _last_line(output: bytes) -> Any:
    lines = output.split(b"\n")
    try:
        return json.loads(lines[-2]) if len(lines) > 1 else None
    except ValueError:
        return None
