"""Experiments to damage: each is made once, and copied back to its place before each damage.

A world is a folder of `storage/run` (the experiment), `cache/run` (its tree on this machine, where
it is persisted elsewhere), `ran` (a line for each epoch that was trained), `told` (a line for each
call of a tracker) and `canary`, which no one may touch.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.rig import ROOT
from tests.rig.bench import QUICK
from tests.rig.mutation.damage import CANARY, EXPERIMENT
from tests.rig.mutation.judge import SECRET

# The runs of the script, one after the other, that make the specimen.
KINDS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "finished": ("local", ("",)),
    "killed": ("local", ("SIGINT", "SIGKILL")),
    "never restored": ("local", ("SIGKILL",)),
    "population": ("population", ("SIGINT", "SIGKILL")),
    "tracked": ("tracked", ("SIGINT", "SIGKILL")),
    "trainer": ("trainer", ("SIGINT", "SIGKILL")),
    "persisted": ("mirrored", ("SIGINT", "SIGKILL")),
    "on another machine": ("mirrored", ("SIGINT",)),
}
_PATIENCE_S = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Specimen:
    """One experiment at `world`; `pristine` is how it was."""

    kind: str
    world: Path
    pristine: Path

    @property
    def experiment(self) -> Path:
        return self.world / "storage" / EXPERIMENT

    @property
    def canary(self) -> Path:
        return self.world / CANARY

    @property
    def epochs_repeated(self) -> int:
        """How many epochs were trained more than once."""
        if self.kind == "population":  # whose trials restart from each other's checkpoints
            return 0
        trained = (self.world / "ran").read_text().splitlines()
        return len(trained) - len(set(trained))

    def environ(self, home: Path) -> dict[str, str]:
        environ = environment(home)
        if KINDS[self.kind][0] == "mirrored":
            environ["RAY_AIR_LOCAL_CACHE_DIR"] = str(self.world / "cache")
        return {
            **environ,
            "SPECIMEN_HOW": KINDS[self.kind][0],
            "SPECIMEN_RAN": str(self.world / "ran"),
        }

    def reset(self) -> None:
        """Restore the original state."""
        shutil.rmtree(self.world)
        shutil.copytree(self.pristine, self.world, symlinks=True)


def environment(home: Path) -> dict[str, str]:
    """The environment of every process: only the user's PATH."""
    return {
        **QUICK,
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def make(kind: str, script: Path, folder: Path) -> Specimen:
    """Run the user's script in `folder`. Raises CalledProcessError where it cannot be run."""
    made = Specimen(kind=kind, world=folder / "world", pristine=folder / "pristine")
    made.canary.mkdir(parents=True)
    (made.canary / "secret").write_text(f"{SECRET}\n")
    (folder / "home").mkdir()
    how, endings = KINDS[kind]
    for ending in endings:
        command = [sys.executable, str(script), str(made.world), how, *filter(None, [ending])]
        done = subprocess.run(
            command,
            env=made.environ(folder / "home"),
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
        )
        if done.returncode not in (0, -9):
            raise RuntimeError(f"the script ended with {done.returncode}:\n{done.stderr}")
    if kind == "on another machine":
        shutil.rmtree(made.world / "cache")
    shutil.copytree(made.world, made.pristine, symlinks=True)
    return made
