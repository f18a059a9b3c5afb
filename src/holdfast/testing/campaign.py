"""A campaign of faults: runs are killed at each thing that they do, or lose their power, and gone
on with; then an independent checker looks at what is there.

`python -m holdfast.testing.campaign --help` runs a long one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from holdfast.testing import checker, faults, powercut
from holdfast.testing.bench import Bench, results, workbench
from holdfast.testing.script import UserScript, acknowledged

EPOCHS = 3
_GOES_ON = {"go_on": True, "wishes": {"resume_errored": True}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """Where a run is cut. `mirrored`: it works in one directory and is persisted to another."""

    role: str
    at: int
    is_torn: bool = False
    takes_all: bool = False
    mirrored: bool = False

    @property
    def kind(self) -> str:
        whom = "the script and " if self.takes_all else ""
        return f"SIGKILL of {whom}the {self.role}{' within a write' if self.is_torn else ''}"

    def __str__(self) -> str:
        where = "mirrored" if self.mirrored else "local"
        return f"{self.kind} at its operation {self.at} ({where})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The power goes after so many fsyncs; `luck` is a seed for what else is on the disk."""

    after: int
    luck: int | None

    @property
    def kind(self) -> str:
        more = "nothing but" if self.luck is None else "by chance more than"
        return f"power cut that leaves {more} what was forced to the disk"

    def __str__(self) -> str:
        return f"{self.kind}, after {self.after} fsyncs (luck {self.luck})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What came of a fault: what it fell on ("" where it never came), and what is wrong then."""

    fault: Crash | Cut
    fell_on: str
    problems: Sequence[str]
    checked: int
    said: str = field(default="", repr=False)


class Stage:
    """Runs the same small experiment again and again, each time in a new folder."""

    def __init__(self, folder: Path, script: Path) -> None:
        self._folder = folder
        self._script = script
        self._runs = 0

    def measure(self, *, mirrored: bool) -> dict[str, int]:
        """How many operations each role comes to in a run that nobody disturbs."""
        with self._bench(mirrored=mirrored) as bench:
            fault = faults.Fault(folder=str(bench.folder / "counting"), roots=_roots(bench))
            bench.environ |= faults.environ_for(fault)
            bench.start().succeeds()
            return faults.counts(Path(fault.folder))

    def crash(self, crash: Crash) -> Story:
        """Cut a run there, go on with it, and hold what is left against what must be true."""
        with self._bench(mirrored=crash.mirrored) as bench:
            fault = faults.Fault(
                folder=str(bench.folder / "counting"),
                roots=_roots(bench),
                role=crash.role,
                at=crash.at,
                is_torn=crash.is_torn,
                takes_all=crash.takes_all,
            )
            bench.environ |= faults.environ_for(fault)
            script = bench.start()
            script.ends()
            problems = [f"outlived its experiment: {left.role}" for left in script.left()]
            script.finish_reading()
            fell_on = faults.fired(Path(fault.folder))
            del bench.environ[faults.VARIABLE]
            again = bench.start(**_GOES_ON)
            problems += _after(bench, again, notes=bench.notes())
            said = "\n".join((script.stderr, again.stderr))
            return _told(crash, fell_on, problems, bench, said)

    @contextmanager
    def recorded(self) -> Iterator[powercut.Recording]:
        """A run of which everything that it forces to the disk is written down."""
        with self._bench(mirrored=False) as bench:
            bench.storage.mkdir()
            bench.environ |= powercut.environ_for(bench.folder / "recorded", bench.storage)
            script = bench.start().succeeds()
            assert script.left() == []
            yield powercut.Recording(bench.folder / "recorded", bench.storage)

    def lose_power(self, recording: powercut.Recording, cut: Cut) -> Story:
        """Go on with what the cut leaves, on a machine that has been started since."""
        with self._bench(mirrored=False) as bench:
            chance = None if cut.luck is None else random.Random(f"{cut.after} {cut.luck}")
            recording.after(cut.after, bench.storage, chance)
            durable = _rows(bench.root)
            bench.environ |= powercut.rebooted("another boot of this machine")
            again = bench.start(**_GOES_ON)
            problems = _after(bench, again, notes=(), may_lose=True)
            lost = durable - _rows(bench.root)
            problems += [f"was on the disk and is lost: {row}" for row in sorted(lost)]
            return _told(cut, str(cut), problems, bench, again.stderr)

    @contextmanager
    def _bench(self, *, mirrored: bool) -> Iterator[Bench]:
        self._runs += 1
        folder = self._folder / f"run-{self._runs}"
        folder.mkdir(parents=True)
        with workbench(folder, self._script) as bench:
            bench.options |= {"epochs": EPOCHS, "num_to_keep": 1, "artifacts": True}
            if mirrored:
                bench.options["sync_artifacts"] = True
                bench.environ["RAY_AIR_LOCAL_CACHE_DIR"] = str(folder / "here")
            yield bench
        shutil.rmtree(folder)


@contextmanager
def in_memory(script: Path) -> Iterator[Stage]:
    """A stage where a new file never has the inode number of one that is gone."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="holdfast-") as folder:
        yield Stage(Path(folder), script)


def _roots(bench: Bench) -> list[str]:
    return [str(bench.storage), str(bench.folder / "here")]


def _trees(bench: Bench) -> list[Path]:
    """Where the experiment lies: in the storage, and in the directory that it works in."""
    here = bench.folder / "here" / "run"
    return [bench.root, here] if "RAY_AIR_LOCAL_CACHE_DIR" in bench.environ else [bench.root]


def _rows(root: Path) -> set[tuple[str, int, int]]:
    """Every row of the journal; none where it has no beginning yet."""
    try:
        trials = checker.fold(root).trials
    except ValueError:
        return set()
    return {(name, *row) for name, trial in trials.items() for row in trial.all_rows}


def _after(
    bench: Bench,
    script: UserScript,
    notes: Sequence[Mapping[str, Any]],
    *,
    may_lose: bool = False,
) -> list[str]:
    """What is wrong after the run that goes on."""
    code = script.ends()
    problems = [f"outlived its experiment: {left.role}" for left in script.left()]
    script.finish_reading()
    if code:
        problems.append(f"going on ended with {code}")
    else:
        problems += _unfinished(script, may_lose=may_lose)
    for tree in _trees(bench):
        name = tree.relative_to(bench.folder)
        try:
            found = checker.check(tree, notes=notes, tensorboard=True)
        except (ValueError, OSError) as error:
            found = [str(error)]
        problems += [f"{name}: {problem}" for problem in found]
        problems += [f"{name}: left behind: {path.relative_to(tree)}" for path in orphans(tree)]
    return problems


def _unfinished(script: UserScript, *, may_lose: bool) -> Iterator[str]:
    """`may_lose`: the power went, and a checkpoint that was not hashed with it; that is told."""
    for found in results(script):
        if found["epoch"] != EPOCHS or found["error"]:
            yield f"a trial has not come to its end: {found}"
        elif found["checkpoint"] != EPOCHS and not (
            may_lose and f"of trial {found['trial']} is lost" in script.stderr
        ):
            yield f"the newest checkpoint of a trial is not there: {found}"


def orphans(root: Path) -> Iterator[Path]:
    """Half written files, half removed directories and what was staged by nobody who lives.

    Not probes of the storage: the next one an hour later takes them away.
    """
    for folder, names, files in os.walk(root):
        for name in (*names, *files):
            if name.startswith((".tmp-", ".removed-", ".writable-")):
                yield Path(folder, name)
        if Path(folder).name == ".staging" and (names or files):
            yield Path(folder)


def _told(
    fault: Crash | Cut, fell_on: str, problems: Sequence[str], bench: Bench, said: str
) -> Story:
    """With the number of things that were looked at."""
    checked = len(acknowledged(bench.notes())) + 1
    for tree in _trees(bench):
        with_rows = 3  # result.json, progress.csv, the event files
        for trial in checker.fold(tree).trials.values():
            checked += with_rows + len(trial.checkpoints) + 1
    return Story(fault=fault, fell_on=fell_on, problems=problems, checked=checked, said=said)


def crashes(measured: Mapping[bool, Mapping[str, int]], chance: random.Random) -> Iterator[Crash]:
    """Without end: each role's operations in random order, each way of dying in turn.

    Roles come equally often, however many operations they have.
    """
    by_role = [
        [
            Crash(role=role, at=at, is_torn=is_torn, takes_all=takes_all, mirrored=mirrored)
            for at in range(1, most + 1)
            for is_torn in (False, True)
            for takes_all in ((False,) if role == "script" else (False, True))
        ]
        for mirrored, roles in measured.items()
        for role, most in roles.items()
        if most
    ]
    while True:
        for role in chance.sample(by_role, len(by_role)):
            yield chance.choice(role)


def cuts(fsyncs: int, chance: random.Random) -> Iterator[Cut]:
    """Without end: every moment at its worst and by chance."""
    while True:
        for after in chance.sample(range(1, fsyncs + 1), fsyncs):
            yield Cut(after=after, luck=None)
            yield Cut(after=after, luck=chance.randrange(1 << 30))


def main() -> None:
    """Run a campaign, print what it did, and exit with 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--crashes", type=int, default=1000)
    parser.add_argument("--cuts", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--script", type=Path, required=True, help="the user's script to run")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    given = parser.parse_args()
    injected: Counter[str] = Counter()
    checked = wrong = 0
    with in_memory(given.script) as stage:
        for story in _stories(stage, given):
            checked += story.checked
            injected[story.fault.kind] += bool(story.fell_on)
            wrong += bool(story.problems)
            if story.problems:
                print(f"{story.fault} on {story.fell_on}:", *story.problems, sep="\n  ")
                print(story.said, file=sys.stderr, flush=True)
    for kind, number in sorted(injected.items()):
        print(f"{number:6} {kind}")
    print(f"{injected.total():6} faults, {checked} things checked, {wrong} stories ended badly")
    if given.json:
        figures = {"faults": dict(injected), "checked": checked, "wrong": wrong}
        given.json.write_text(json.dumps(figures, indent=1))
    sys.exit(1 if wrong else 0)


def _stories(stage: Stage, given: argparse.Namespace) -> Iterator[Story]:
    chance = random.Random(given.seed)
    measured = {mirrored: stage.measure(mirrored=mirrored) for mirrored in (False, True)}
    done = 0
    for crash in crashes(measured, chance):
        if done >= given.crashes:
            break
        story = stage.crash(crash)
        done += bool(story.fell_on)
        yield story
    with stage.recorded() as recording:
        for cut in islice(cuts(len(recording.moments), chance), given.cuts):
            yield stage.lose_power(recording, cut)


if __name__ == "__main__":
    main()
