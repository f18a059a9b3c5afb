"""Runs the contests, stores their results, writes the tables and plots of docs/quality.md."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.quality.contest import SEEDS, Contest
from benchmarks.quality.contests import CONTESTS
from benchmarks.quality.results import FILE, OURS, Result, read, write
from benchmarks.quality.running import (
    NAMES,
    PEERS,
    Absent,
    random_search,
    run_ours,
    run_peer,
)
from benchmarks.quality.tables import fill_cells, put_into, told


def main(arguments: Sequence[str]) -> None:
    """Run the requested contests again; all other results in the file stay."""
    asked = _parser().parse_args(arguments)
    chosen = [
        replace(one, tasks=[task for task in one.tasks if task in (asked.tasks or one.tasks)])
        for one in CONTESTS
        if not asked.only or one.name in asked.only
    ]
    results = {found.key: found for found in read(asked.results)}
    for found in _run(chosen, asked.side, asked.seeds, frozenset(results) if asked.keep else ()):
        results[found.key] = found
        write(list(results.values()), asked.results)
    if asked.plots:
        from benchmarks.quality.plots import draw_all

        draw_all(list(results.values()), asked.plots)
    print(told(list(results.values())))
    if asked.page:
        put_into(asked.page, list(results.values()))
    for page in asked.cells:
        fill_cells(page, list(results.values()))


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _run(
    contests: Sequence[Contest], sides: Sequence[str], seeds: int, known: Collection[object]
) -> Iterator[Result]:
    if OURS in sides:
        yield from all_ours(contests, seeds, known)
    for peer in PEERS:
        if peer in sides:
            yield from _all_of(peer, contests, seeds, known)


def all_ours(
    contests: Sequence[Contest], seeds: int, known: Collection[object] = ()
) -> Iterator[Result]:
    """Run holdfast's side, random search first; skips what is `known`."""
    for contest in _with_random(contests):
        for task in contest.tasks:
            if (OURS, contest.name, task, contest.field.workers) in known:
                continue
            try:
                found = run_ours(contest, task, min(seeds, contest.seeds))
            except Absent as absent:
                say(f"not there: {absent}")
                break
            say(f"{contest.name} on {task}: {found.took_s} s")
            yield found


def _with_random(contests: Sequence[Contest]) -> Iterator[Contest]:
    """Random search on each task and field that occurs, first."""
    done: set[tuple[str, int]] = set()
    for contest in contests:
        tasks = [t for t in contest.tasks if (t, contest.field.workers) not in done]
        done.update((task, contest.field.workers) for task in tasks)
        if tasks:
            yield replace(random_search(), tasks=tasks, field=contest.field)
    yield from contests


def _all_of(
    peer: str, contests: Sequence[Contest], seeds: int, known: Collection[object]
) -> Iterator[Result]:
    for contest in contests:
        algorithm = {**contest.peers, **contest.kin}.get(peer)
        if algorithm is None:
            continue
        workers = contest.field.workers
        tasks = [t for t in contest.tasks if (peer, algorithm, t, workers) not in known]
        try:
            count = min(seeds, contest.seeds)
            for found in run_peer(peer, algorithm, tasks, contest.field, count) if tasks else ():
                say(f"{NAMES[peer]}'s {algorithm} on {found.task}: {found.took_s} s")
                yield found
        except Absent as absent:
            say(f"not there: {absent}")
            return
        except subprocess.CalledProcessError as error:
            say(f"{NAMES[peer]}'s {algorithm} failed: {error}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="quality", description=__doc__)
    names = [contest.name for contest in CONTESTS]
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--side", nargs="*", choices=(OURS, *PEERS), default=(OURS, *PEERS),
                        help="whose runs (all); none to draw what is there")  # fmt: skip
    parser.add_argument("--seeds", type=int, default=SEEDS, metavar="N")
    parser.add_argument("--tasks", nargs="+", metavar="TASK", help="run on these alone")
    parser.add_argument("--keep", action="store_true", help="run only what the file has not")
    parser.add_argument("--results", type=Path, default=FILE, metavar="FILE")
    parser.add_argument("--page", type=Path, metavar="FILE", help="put the tables into this page")
    parser.add_argument("--cells", type=Path, nargs="*", default=[], metavar="FILE",
                        help="put what each algorithm came to into the tables there")  # fmt: skip
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="draw all pictures there")
    return parser
