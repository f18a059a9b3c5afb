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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from holdfast.testing import checker, faults, powercut
from holdfast.testing.bench import Bench, results, workbench
from holdfast.testing.bucket import Bucket
from holdfast.testing.fault_proxy import FaultProxy, Ill
from holdfast.testing.mishaps import Crash, Cut, Mishap, Strike, crashes, cuts, strikes
from holdfast.testing.s3_server import S3Server, make_bucket, moto_server
from holdfast.testing.script import UserScript, acknowledged

EPOCHS = 3
_GOES_ON = {"go_on": True, "wishes": {"resume_errored": True}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What came of a fault: what it fell on ("" where it never came), and what is wrong then."""

    fault: Mishap
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

    def strike(self, server: S3Server, strike: Strike) -> Story:
        """A run whose bucket ails, and one that goes on with it when it is well again.

        The first may fail, and then has told so; the second may not.
        """
        with self._bench(mirrored=False) as bench:
            prefix = f"{self._folder.name}-{self._runs}"
            with _between(server, strike) as proxy:
                here = bench.use(Bucket(server, prefix, proxy), machine="here")
                bench.options["sync_artifacts"] = True
                script = bench.start()
                script.ends()
                problems = [f"outlived its experiment: {left.role}" for left in script.left()]
                script.finish_reading()
            bucket = Bucket(server, prefix)
            bench.options["storage"] = bucket.storage_path
            again = bench.start(**_GOES_ON)
            # Downloaded when the second run has ended, to where a directory would be.
            problems += _after(
                bench,
                again,
                notes=bench.notes(),
                trees=lambda: (here, bucket.download(bench.storage)),
            )
            said = "\n".join((script.stderr, again.stderr))
            return _told(strike, "; ".join(proxy.struck), problems, bench, said)

    def requests(self, server: S3Server) -> int:
        """How many requests a run makes whose bucket is well."""
        with self._bench(mirrored=False) as bench, _between(server, None) as proxy:
            bench.use(Bucket(server, f"{self._folder.name}-well", proxy), machine="here")
            bench.options["sync_artifacts"] = True
            bench.start().succeeds()
            return len(proxy.log)

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


@contextmanager
def _between(server: S3Server, strike: Strike | None) -> Iterator[FaultProxy]:
    ill, at = (Ill.LATENCY, 0) if strike is None else (strike.ill, strike.at)
    proxy = FaultProxy(server.endpoint, ill, at=at, times=strike.times if strike else 1)
    try:
        yield proxy
    finally:
        proxy.close()


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
    trees: Callable[[], Iterable[Path]] | None = None,
) -> list[str]:
    """What is wrong after the run that goes on, and in the `trees` that it leaves."""
    code = script.ends()
    problems = [f"outlived its experiment: {left.role}" for left in script.left()]
    script.finish_reading()
    if code:
        problems.append(f"going on ended with {code}")
    else:
        problems += _unfinished(script, may_lose=may_lose)
    for tree in _trees(bench) if trees is None else trees():
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


def _told(fault: Mishap, fell_on: str, problems: Sequence[str], bench: Bench, said: str) -> Story:
    """With the number of things that were looked at."""
    checked = len(acknowledged(bench.notes())) + 1
    for tree in _trees(bench):
        with_rows = 3  # result.json, progress.csv, the event files
        for trial in checker.fold(tree).trials.values():
            checked += with_rows + len(trial.checkpoints) + 1
    return Story(fault=fault, fell_on=fell_on, problems=problems, checked=checked, said=said)


def main() -> None:
    """Run a campaign, print what it did, and exit with 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--crashes", type=int, default=1000)
    parser.add_argument("--cuts", type=int, default=200)
    parser.add_argument("--strikes", type=int, default=200, help="of the storage")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--script", type=Path, required=True, help="the user's script to run")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    given = parser.parse_args()
    injected: Counter[str] = Counter()
    checked = wrong = 0
    with in_memory(given.script.resolve()) as stage:
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
    with moto_server() as server:
        make_bucket(server, "bucket")
        for strike in islice(strikes(stage.requests(server), chance), given.strikes):
            yield stage.strike(server, strike)


if __name__ == "__main__":
    main()
