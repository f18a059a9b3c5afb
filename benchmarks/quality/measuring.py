"""The contests as rows of the benchmarks' table; the peers' results come from benchmarks/data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from benchmarks.measure import Bench
from benchmarks.quality.command import all_ours
from benchmarks.quality.contest import RANDOM, SEEDS, Contest
from benchmarks.quality.contests import CONTESTS
from benchmarks.quality.results import OURS, Result, read
from benchmarks.quality.running import NAMES
from benchmarks.quality.statistics import LEVEL
from benchmarks.quality.verdicts import Runs, against_peers
from benchmarks.rows import Goal, Row

_QUICK = "ASHA"
_BETTER = Goal(of="ratio", bound=1.0)
_SHOWN = Goal(of="ours", bound=LEVEL)


def measure(bench: Bench) -> list[Row]:
    """Regret over time compared with random search, and the p-values of claims about the peers."""
    if bench.quick:
        contests = [replace(one, tasks=one.tasks[:1]) for one in CONTESTS if one.name == _QUICK]
        found = list(all_ours(contests, 2))
    else:
        contests = list(CONTESTS)
        theirs = [kept for kept in read() if kept.side != OURS]
        found = [*theirs, *all_ours(contests, SEEDS)]
    return [*_random_rows(contests, found), *_claims(found)]


def _random_rows(contests: Sequence[Contest], found: Sequence[Result]) -> Iterator[Row]:
    runs = Runs(found)
    for contest in contests:
        for task in contest.tasks:
            ours = runs.scores(OURS, contest.name, task, contest.field.workers)
            at_random = runs.scores(OURS, RANDOM, task, contest.field.workers)
            work = f"{contest.name} on {task}: regret over time"
            if ours is None or at_random is None:
                yield Row(work=work, unit="", note="not there")
                continue
            yield Row(
                work=work,
                unit="",
                ours=ours,
                reference=at_random,
                reference_name=RANDOM,
                goal=_BETTER if contest.beats_random else None,
            )


def _claims(found: Sequence[Result]) -> Iterator[Row]:
    for one in against_peers(found):
        if not one.is_kin:
            work = f"{one.contest} not worse than {NAMES[one.peer]} {one.version}'s: p"
            yield Row(work=work, unit="", ours=[one.p], goal=_SHOWN)
