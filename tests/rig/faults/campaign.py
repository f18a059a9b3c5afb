"""A campaign of faults: runs are killed at each operation, or lose their power or storage, and are
resumed; then an independent checker examines the result.

`python -m tests.rig.faults.campaign --help` runs a long one.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

from tests.rig.faults.aftermath import Story
from tests.rig.faults.bucket_stage import BucketStage
from tests.rig.faults.mishaps import (
    Crash,
    Kill,
    Mishap,
    crashes,
    cuts,
    refusals,
    removals,
    stops,
    strikes,
)
from tests.rig.faults.node_mishaps import node_mishaps
from tests.rig.faults.node_stage import NodeStage, node_stage
from tests.rig.faults.stage import Stage, in_memory
from tests.rig.nodes.machines import missing
from tests.rig.storage.s3_server import make_bucket, moto_server, rclone_server

M = TypeVar("M", bound=Mishap)

_SIGN_OF_LIFE = 100


class Tally:
    """The faults injected and the checks made so far."""

    def __init__(self) -> None:
        self.injected: Counter[str] = Counter()
        self.checked: Counter[str] = Counter()
        self.told = self.reached = self.wrong = 0
        self.notes: list[str] = []

    def take(self, story: Story) -> None:
        self.told += 1
        self.reached += bool(story.fell_on)
        self.wrong += bool(story.problems)
        self.injected.update({kind: n for kind, n in story.injected.items() if n})
        self.checked.update(story.checked)

    def figures(self) -> dict[str, object]:
        """The figures for `--json`."""
        return {
            "faults": dict(self.injected),
            "checked": dict(self.checked),
            "notes": self.notes,
            "stories": self.told,
            "wrong": self.wrong,
        }

    def lines(self) -> Iterator[str]:
        """The figures, as they are printed at the end."""
        yield from (f"{number:7} {kind}" for kind, number in sorted(self.injected.items()))
        yield f"{self.injected.total():7} faults of {len(self.injected)} kinds, injected"
        yield from (f"{number:7} times: {rule}" for rule, number in sorted(self.checked.items()))
        yield f"{self.checked.total():7} times {len(self.checked)} invariants were checked"
        yield from self.notes
        yield f"{self.wrong:7} of {self.told} scenarios failed"


@contextmanager
def bucket_stage(stage: Stage) -> Iterator[BucketStage]:
    """With its own servers."""
    folder = stage.folder / "rclone"
    (folder / "bucket").mkdir(parents=True)
    with moto_server() as deciding, rclone_server(folder) as hashing:
        make_bucket(deciding, "bucket")
        yield BucketStage(stage, deciding=deciding, hashing=hashing)


def played(play: Callable[[M], Story], mishaps: Iterable[M], jobs: int) -> Iterator[Story]:
    """Run this many at once, and print them in order."""
    with ThreadPoolExecutor(jobs) as threads:
        under_way: deque[Future[Story]] = deque()
        for mishap in mishaps:
            under_way.append(threads.submit(play, mishap))
            if len(under_way) > jobs:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()


def main() -> None:
    """Run a campaign, print its figures, and exit with 1 if anything was wrong."""
    given = _arguments()
    tally = Tally()
    try:
        for story in _of_nodes(given, tally) if given.nodes else _of_one_machine(given):
            tally.take(story)
            if story.problems:
                print(f"{story.fault} on {story.fell_on}:", *story.problems, sep="\n  ")
                print(story.said, file=sys.stderr, flush=True)
            if not tally.told % (_SIGN_OF_LIFE // (10 if given.nodes else 1)):
                print(f"{tally.told} scenarios, {tally.wrong} failures", flush=True)
    finally:  # print the figures of an interrupted one, too
        print(*tally.lines(), sep="\n")
        if given.json:
            given.json.write_text(json.dumps(tally.figures(), indent=1))
    sys.exit(1 if tally.wrong else 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--crashes", type=int, default=1000)
    parser.add_argument("--cuts", type=int, default=200)
    parser.add_argument("--refusals", type=int, default=100, help="fsyncs that the disk refuses")
    parser.add_argument("--removals", type=int, default=100, help="folders and files removed")
    parser.add_argument("--stops", type=int, default=200, help="processes that are stopped")
    parser.add_argument("--strikes", type=int, default=200, help="what befalls runs in a bucket")
    parser.add_argument("--outage-s", type=float, default=60, help="of a server that comes back")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ranks", type=int, default=0, help="workers that train each trial")
    parser.add_argument("--nodes", type=int, default=0, help="only faults across so many machines")
    parser.add_argument("--nodes-faults", type=int, default=300, help="with --nodes: how many")
    parser.add_argument("--jobs", type=int, default=1, help="stories at once")
    parser.add_argument(
        "--every",
        choices=("local", "mirrored", "requests"),
        action="append",
        help="nothing at random: each operation of each role, or each request, in order",
    )
    parser.add_argument("--script", type=Path, required=True, help="the user's script to run")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    return parser.parse_args()


def _of_one_machine(given: argparse.Namespace) -> Iterator[Story]:
    with in_memory(given.script.resolve(), given.ranks) as stage:
        yield from _stories(stage, given)


def _of_nodes(given: argparse.Namespace, tally: Tally) -> Iterator[Story]:
    """One scenario after the other, on the same machines, until so many faults were injected."""
    if why := missing():
        raise SystemExit(f"There are no machines for --nodes: {why}")
    chance = random.Random(given.seed)
    with node_stage(given.script.resolve(), given.nodes) as stage:
        requests, epochs = stage.measure()
        series = node_mishaps(given.nodes, requests, epochs, chance)
        while tally.injected.total() < given.nodes_faults:
            yield stage.play(next(series))
        tally.notes += _how_soon(stage)


def _how_soon(stage: NodeStage) -> Iterator[str]:
    """After how many seconds nodes were given up."""
    for kind, took in sorted(stage.took.items()):
        median = sorted(took)[len(took) // 2]
        most = max(took)
        yield f"{len(took):7} nodes given up after {median:.1f} s, {most:.1f} s at most: {kind}"


def _stories(stage: Stage, given: argparse.Namespace) -> Iterator[Story]:
    if given.every:
        yield from _every(stage, given)
        return
    chance = random.Random(given.seed)
    if given.crashes:
        measured = {mirrored: stage.measure(mirrored=mirrored) for mirrored in (False, True)}
        yield from _until_fallen(stage, crashes(measured, chance), given)
    if given.stops or given.removals:
        measured = {mirrored: stage.measure(mirrored=mirrored) for mirrored in (False, True)}
        to_stop = islice(stops(measured, chance), given.stops)
        yield from played(stage.stop, to_stop, given.jobs)
        to_remove = islice(removals(measured, chance), given.removals)
        yield from played(stage.remove, to_remove, given.jobs)
    if given.cuts:
        with stage.recorded() as recording:
            chosen = islice(cuts(len(recording.moments), chance), given.cuts)
            yield from played(partial(stage.lose_power, recording), chosen, given.jobs)
    if given.refusals:
        with stage.recorded() as recording:
            fsyncs = len(recording.moments)
        yield from played(
            stage.refuse, islice(refusals(fsyncs, chance), given.refusals), given.jobs
        )
    if given.strikes:
        with bucket_stage(stage) as buckets:
            series = strikes(buckets.requests(), chance, outage_s=given.outage_s)
            yield from played(buckets.play, islice(series, given.strikes), given.jobs)


def _until_fallen(
    stage: Stage, series: Iterator[Crash], given: argparse.Namespace
) -> Iterator[Story]:
    """Run until this many have occurred: an operation may not be a write, or not occur in each
    run."""
    done = 0
    while done < given.crashes:
        for story in played(stage.crash, islice(series, given.crashes - done), given.jobs):
            done += bool(story.fell_on)
            yield story


def _every(stage: Stage, given: argparse.Namespace) -> Iterator[Story]:
    for what in given.every:
        if what == "requests":
            with bucket_stage(stage) as buckets:
                yield from _each_request(buckets, given.jobs)
        else:
            yield from _each_operation(stage, what, given.jobs)


def _each_operation(stage: Stage, where: str, jobs: int) -> Iterator[Story]:
    mirrored = where == "mirrored"
    for role, most in stage.measure(mirrored=mirrored).items():
        if not most:
            continue
        each = [Crash(role=role, at=at, mirrored=mirrored) for at in range(1, most + 1)]
        what = f"{where}, operations of the {role}"
        yield from _counted(what, most, played(stage.crash, each, jobs))


def _each_request(buckets: BucketStage, jobs: int) -> Iterator[Story]:
    most = buckets.requests()
    for is_performed in (False, True):
        each = [
            Kill(at=at, victims=("script", "uploader"), is_performed=is_performed)
            for at in range(1, most + 1)
        ]
        when = "performed" if is_performed else "not performed"
        what = f"requests to the bucket, {when}"
        yield from _counted(what, most, played(buckets.play, each, jobs))


def _counted(what: str, most: int, stories: Iterator[Story]) -> Iterator[Story]:
    """Printed at the end: how many operations of all were hit."""
    reached = 0
    for story in stories:
        reached += bool(story.fell_on)
        yield story
    print(f"{what}: {reached} of {most}", flush=True)


if __name__ == "__main__":
    main()
