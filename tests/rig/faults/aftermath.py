"""Checks what is left of a run after a fault."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from holdfast.dataclass import dataclass
from tests.rig import checker
from tests.rig.bench import Bench, results
from tests.rig.faults.mishaps import Mishap
from tests.rig.faults.node_mishaps import NodeMishap
from tests.rig.mounts import in_own_mounts, may_mount
from tests.rig.script import UserScript, acknowledged

_LONGEST_S = 150.0
_REMOVES = Path(__file__).with_name("removing_script.py")
_FILES_OF_ROWS = 3  # result.json, progress.csv, the event files


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """The outcome of a fault: the operation that it hit ("" if it never occurred), and what is
    wrong then.

    `injected` counts the faults by kind, `checked` the checks by their subject.
    """

    fault: Mishap | NodeMishap
    fell_on: str
    problems: Sequence[str]
    injected: Mapping[str, int]
    checked: Mapping[str, int]
    said: str = field(default="", repr=False)


class Aftermath:
    """Collects faults, and counts the checks."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.problems: list[str] = []
        self.checked: Counter[str] = Counter()
        self._said: list[str] = []

    def wrong(self, problem: str) -> None:
        self.problems.append(problem)

    def ended(self, script: UserScript) -> int:
        """Wait for the end of a run and check that no process of it is left; returns its exit
        code."""
        self.checked["a run comes to its end, and no process outlives it"] += 1
        try:
            code = script.ends(_LONGEST_S)
        except AssertionError as error:
            self.wrong(str(error))
            script.kill_all()
            code = script.ends()
        self.problems += [f"outlived its run: {left.role}" for left in script.left()]
        script.finish_reading()
        self._said.append(script.stderr)
        return code

    def finishes(self, script: UserScript, *, may_lose: bool = False) -> None:
        """The run that continues must succeed, with all trials ended."""
        code = self.ended(script)
        if code:
            self.wrong(f"the resumed run ended with {code}")
            return
        for found in results(script):
            self.checked["a trial comes to its end, with its checkpoint"] += 1
            self.problems += self.unfinished(found, may_lose=may_lose)

    def says(self, texts: Iterable[str]) -> None:
        """The failed run must have printed one of these."""
        if not any(text in self._all_said for text in texts):
            self.wrong("the run ended with an error that does not say what it was")

    def unfinished(self, found: Mapping[str, Any], *, may_lose: bool) -> Iterator[str]:
        """What a result lacks. `may_lose`: the power, or the machine, was lost together with a
        checkpoint; this is reported."""
        epochs = self.bench.options["epochs"]
        if found["epoch"] != epochs or found["error"]:
            yield f"a trial has not come to its end: {found}"
        elif found["checkpoint"] != epochs and not (
            may_lose and f"of trial {found['trial']} is lost" in self._all_said
        ):
            yield f"the newest checkpoint of a trial is not there: {found}"

    def without_told_losses(self, notes: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """The notes, without epochs of a trial whose checkpoint was reported as lost."""
        lost = set(re.findall(r"of trial (\S+) is lost", self._all_said))
        return [fact for fact in notes if fact.get("what") != "ran" or fact["trial"] not in lost]

    @property
    def _all_said(self) -> str:
        return "\n".join(self._said)

    def holds(
        self,
        trees: Iterable[Path],
        notes: Sequence[Mapping[str, Any]],
        *,
        ended: bool = True,
        when: str = "",
        storage: Path | None = None,
    ) -> None:
        """Each tree must be a complete experiment; `notes` say what was acknowledged.

        `storage`: the tree that may have a checkpoint in place of another tree.
        """
        self._outside(self.bench.notes())
        for tree in trees:
            name = f"{when}{tree.relative_to(self.bench.folder)}"
            try:
                other = None if tree == storage else storage
                found = checker.check(
                    tree, notes=notes, tensorboard=ended, ended=ended, storage=other
                )
                self._count(tree, notes, ended=ended)
            except (ValueError, OSError) as error:
                found = [str(error)]
            if ended:
                found += [f"left behind: {path.relative_to(tree)}" for path in orphans(tree)]
            self.problems += [f"{name}: {problem}" for problem in found]

    def keeps_what_is_mounted(self, trees: Iterable[Path]) -> None:
        """Nothing that removes may touch what is mounted inside the experiment, or remove the rest
        of it."""
        if not may_mount():
            return
        for tree in trees:
            self.checked["what is mounted inside an experiment stays, and so does the rest"] += 1
            place = self.bench.folder / "mounted"
            place.mkdir(exist_ok=True)
            (place / "weights").write_text("mine")
            before = _names(tree)
            try:
                said = in_own_mounts(_REMOVES, tree, place)
            except AssertionError as error:
                said = str(error)
            if not said.endswith("KEPT\n") or (place / "weights").read_text() != "mine":
                self.wrong(f"something was removed that is mounted: {said}")
            if before != _names(tree):
                self.wrong("something was removed around what is mounted")

    def _outside(self, notes: Sequence[Mapping[str, Any]]) -> None:
        """What a link led to, and was reported as a checkpoint, is as the user wrote it."""
        for fact in notes:
            path = Path(fact.get("path", ""))
            if fact.get("what") != "written" or path.parent.name != "outside":
                continue
            self.checked["what a link leads to stays as it is"] += 1
            found = {one.name: one.read_bytes() for one in path.iterdir()} if path.exists() else {}
            if found != {
                "epoch.json": json.dumps({"epoch": fact["epoch"]}).encode(),
                "weights": bytes([fact["epoch"] % 256]) * fact["size"],
            }:
                self.wrong(f"{path}, which a link led to, is not as it was: {sorted(found)}")

    def _count(self, tree: Path, notes: Sequence[Mapping[str, Any]], *, ended: bool) -> None:
        self.checked["an acknowledged row is in the journal"] += len(acknowledged(notes))
        self.checked["an epoch is not run again that was acknowledged with its checkpoint"] += sum(
            fact.get("what") == "ran" for fact in notes
        )
        for trial in checker.fold(tree).trials.values():
            self.checked["a checkpoint that is named is whole"] += len(trial.checkpoints)
            if ended:
                shown = len(trial.rows) * _FILES_OF_ROWS
                self.checked["an iteration is shown once by each file"] += shown
        self.checked["nothing is left behind in a tree"] += ended

    def story(
        self,
        fault: Mishap | NodeMishap,
        fell_on: str,
        injected: Mapping[str, int] | None = None,
    ) -> Story:
        return Story(
            fault=fault,
            fell_on=fell_on,
            problems=tuple(self.problems),
            injected={fault.kind: int(bool(fell_on))} if injected is None else injected,
            checked=self.checked,
            said=self._all_said,
        )


def _names(tree: Path) -> set[Path]:
    return {path for path in tree.rglob("*") if not path.name.startswith(".lock")}


def rows(root: Path) -> set[tuple[str, int, int]]:
    """Every row of the journal; none if it has no beginning yet."""
    try:
        trials = checker.fold(root).trials
    except ValueError:
        return set()
    return {(name, *row) for name, trial in trials.items() for row in trial.all_rows}


def acknowledged_rows(notes: Sequence[Mapping[str, Any]]) -> set[tuple[str, int, int]]:
    """Every row whose `report()` has returned."""
    return {(fact["trial"], fact["attempt"], fact["iteration"]) for fact in acknowledged(notes)}


def has_begun(root: Path) -> bool:
    """Whether its journal has the experiment's first record."""
    try:
        checker.fold(root)
    except ValueError:
        return False
    return True


def orphans(root: Path) -> Iterator[Path]:
    """Half-written files, half-removed directories, probes of storage, and staged files of dead
    processes."""
    for folder, names, files in os.walk(root):
        for name in (*names, *files):
            if name.startswith((".tmp-", ".removed-", ".writable-", ".holdfast-preflight")):
                yield Path(folder, name)
        if Path(folder).name == ".staging" and (names or files):
            yield Path(folder)
