"""The claims that the runs support: as good as the peer, better than random search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import mean, median

from benchmarks.quality.contest import RANDOM, Contest
from benchmarks.quality.contests import CONTESTS
from benchmarks.quality.results import OURS, Result
from benchmarks.quality.statistics import LEVEL, better, holm, not_worse

Scores = Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgainstPeer:
    """One of holdfast's algorithms compared with a peer over `tasks`.

    `ours` and `theirs` are the medians of the scores of `seeds` runs each. `p` is that of
    "holdfast is not worse by MARGIN", `p_worse` of "holdfast is worse", each adjusted for all
    tests. `is_kin`: another algorithm, not tested. `random_passes`: random search would count as
    good as the peer, too.
    """

    contest: str
    peer: str
    algorithm: str
    version: str
    tasks: Sequence[str]
    seeds: int
    ours: float
    theirs: float
    is_kin: bool
    p: float
    p_worse: float
    random_passes: bool

    @property
    def verdict(self) -> str:
        if self.is_kin:
            return "another algorithm"
        if self.p < LEVEL:
            return "not worse"
        return "worse" if self.p_worse < LEVEL else "not shown"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgainstRandom:
    """One of holdfast's algorithms against random search on one task.

    Medians of the scores and of the final regrets, and the adjusted p of "holdfast is better".
    """

    contest: str
    task: str
    seeds: int
    score: float
    final: float
    final_at_random: float
    p: float
    is_claimed: bool

    @property
    def verdict(self) -> str:
        if self.p < LEVEL:
            return "better"
        return "NOT better" if self.is_claimed else "not better"


class Runs:
    """All results, by side, algorithm, task and workers; scores in units of random search's."""

    def __init__(self, results: Sequence[Result]) -> None:
        self._by_key = {found.key: found for found in results}

    def scores(self, side: str, algorithm: str, task: str, workers: int) -> Scores | None:
        found = self._by_key.get((side, algorithm, task, workers))
        reference = self._by_key.get((OURS, RANDOM, task, workers))
        if found is None or reference is None:
            return None
        unit = median(reference.scores)
        return [score / unit for score in found.scores]

    def result(self, side: str, algorithm: str, task: str, workers: int) -> Result | None:
        return self._by_key.get((side, algorithm, task, workers))

    def pooled(self, side: str, algorithm: str, tasks: Sequence[str], workers: int) -> Scores:
        """The mean over the tasks, for each seed that all tasks have."""
        each = [self.scores(side, algorithm, task, workers) or () for task in tasks]
        return [mean(scores) for scores in zip(*each, strict=False)]


def against_peers(results: Sequence[Result]) -> list[AgainstPeer]:
    runs = Runs(results)
    found = [
        measured
        for contest in CONTESTS
        for peer, algorithm in {**contest.peers, **contest.kin}.items()
        if (measured := _against_peer(runs, contest, peer, algorithm)) is not None
    ]
    tested = [at for at, one in enumerate(found) if not one.is_kin]
    ps = holm({at: found[at].p for at in tested})
    worse = holm({at: found[at].p_worse for at in tested})
    return [_adjusted(one, ps.get(at), worse.get(at)) for at, one in enumerate(found)]


def _against_peer(runs: Runs, contest: Contest, peer: str, algorithm: str) -> AgainstPeer | None:
    workers = contest.field.workers
    tasks = [
        task
        for task in contest.tasks
        if runs.scores(OURS, contest.name, task, workers)
        and runs.scores(peer, algorithm, task, workers)
    ]
    if not tasks:
        return None
    ours = runs.pooled(OURS, contest.name, tasks, workers)
    theirs = runs.pooled(peer, algorithm, tasks, workers)
    seeds = min(len(ours), len(theirs))
    ours, theirs = ours[:seeds], theirs[:seeds]
    at_random = runs.pooled(OURS, RANDOM, tasks, workers)[:seeds]
    known = runs.result(peer, algorithm, tasks[0], workers)
    assert known is not None
    return AgainstPeer(
        contest=contest.name,
        peer=peer,
        algorithm=algorithm,
        version=known.version,
        tasks=tasks,
        seeds=seeds,
        ours=median(ours),
        theirs=median(theirs),
        is_kin=peer in contest.kin,
        p=not_worse(ours, theirs),
        p_worse=better(theirs, ours),
        random_passes=not_worse(at_random, theirs) < LEVEL,
    )


def _adjusted(one: AgainstPeer, p: float | None, p_worse: float | None) -> AgainstPeer:
    if p is None or p_worse is None:
        return one
    return replace(one, p=p, p_worse=p_worse)


def against_random(results: Sequence[Result]) -> list[AgainstRandom]:
    runs = Runs(results)
    found: dict[tuple[str, str], AgainstRandom] = {}
    for contest in CONTESTS:
        for task in contest.tasks:
            one = _against_random(runs, contest, task)
            if one is not None:
                found[contest.name, task] = one
    ps = holm({key: one.p for key, one in found.items()})
    return [replace(one, p=ps[key]) for key, one in found.items()]


def _against_random(runs: Runs, contest: Contest, task: str) -> AgainstRandom | None:
    workers = contest.field.workers
    ours = runs.scores(OURS, contest.name, task, workers)
    others = runs.scores(OURS, RANDOM, task, workers)
    found = runs.result(OURS, contest.name, task, workers)
    reference = runs.result(OURS, RANDOM, task, workers)
    if ours is None or others is None or found is None or reference is None:
        return None
    return AgainstRandom(
        contest=contest.name,
        task=task,
        seeds=len(ours),
        score=median(ours),
        final=median(found.finals),
        final_at_random=median(reference.finals[: len(ours)]),
        p=better(ours, others[: len(ours)]),
        is_claimed=contest.beats_random,
    )
