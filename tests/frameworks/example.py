"""An example, run as a user runs it, while its ranks and the script are killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.rig import checker
from tests.rig.bench import Bench
from tests.rig.script import UserScript

# The first import of a framework, on a machine that does other things, too.
LONGEST_S = 300


class Example:
    """`path` and its `arguments`; the experiment is `run` in the bench's storage."""

    def __init__(self, path: Path, *arguments: str) -> None:
        self._path = path
        self._arguments = arguments

    def start(self, bench: Bench) -> UserScript:
        place = ("--storage", str(bench.storage), "--name", "run")
        return bench.run(bench.script, str(self._path), *place, *self._arguments)

    def whole(self, bench: Bench) -> UserScript:
        """Nothing is killed."""
        return self.start(bench).succeeds(within_s=LONGEST_S)

    def disturbed(self, bench: Bench, *, at: tuple[int, int]) -> UserScript:
        """The script is killed before iteration at[0] is reported, then rank 1 in at[1]."""
        first, second = at
        bench.environ["HOLDFAST_TEST_DIES"] = f"2 {second} 1"
        gate = bench.gate(f"report-{first}")
        script = self.start(bench)
        script.wait_for(f"at {first} 1", within_s=LONGEST_S)
        script.dies()
        gate.open()
        after = self.whole(bench)
        assert "Resuming run" in after.stdout
        assert after.left() == []
        return after


def rows(bench: Bench) -> list[dict[str, Any]]:
    (path,) = bench.root.glob("*/result.json")
    return [json.loads(line) for line in path.read_text().splitlines()]


def learned(bench: Bench, *names: str) -> list[tuple[float, ...]]:
    return [tuple(row[name] for name in names) for row in rows(bench)]


def marks(script: UserScript, count: int) -> list[str]:
    return [script.wait_for("at") for _ in range(count)]


def nodes_of(root: Path) -> set[str]:
    """The nodes on which the only trial of an experiment runs."""
    (started,) = [fields for name, _, fields in checker.records(root) if name == "Started"]
    return set(started["nodes"])
