"""Finds the cause among the failures of several ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from holdfast.trial.errors import Failure

OUT_OF_STEP = "RanksOutOfStep"


class RankFailures:
    """The failures of one attempt's ranks, in the order of their reports."""

    def __init__(self) -> None:
        self._failures: list[tuple[int, Failure]] = []
        self._is_taken = False

    @property
    def ranks(self) -> set[int]:
        """The ranks that have failed."""
        return {rank for rank, _ in self._failures}

    def add(self, rank: int, failure: Failure) -> None:
        self._failures.append((rank, failure))

    def take(self, hosts: Mapping[int, str], *, refused_by: int | None) -> Failure | None:
        """The failure of the trial, as in `cause_of`; once, and None if no rank has failed."""
        if self._is_taken or not self._failures:
            return None
        self._is_taken = True
        return cause_of(self._failures, hosts, refused_by=refused_by)


def cause_of(
    failures: Sequence[tuple[int, Failure]],
    hosts: Mapping[int, str],
    *,
    refused_by: int | None = None,
) -> Failure:
    """The failure that is the cause, naming its rank, with those of other ranks below it.

    The first one reported need not be the cause: user code that raises because a peer has died may
    report before the death is known. The rank `refused_by` has failed the report of all ranks, and
    the others may report its error first.
    """

    def is_consequence(ranked: tuple[int, Failure]) -> tuple[bool, bool]:
        rank, failure = ranked
        return _may_follow(failure), refused_by not in (None, rank)

    rank, first = min(failures, key=is_consequence)
    below = _below(first, [other for other in failures if other != (rank, first)])
    host = first.hostname or hosts.get(rank, "")
    # A node has its own field, so that failures on several nodes are seen to have one cause.
    where = f" on {host}" if host and not first.node else ""
    return replace(
        first,
        message=f"rank {rank}{where}: {first.message}",
        traceback=first.traceback + below,
        hostname=host,
        rank=rank,
    )


def _below(first: Failure, others: Sequence[tuple[int, Failure]]) -> str:
    """Each text once: a bug in the training loop fails all ranks alike."""
    ranks_by_text: dict[str, list[int]] = {}
    for rank, failure in others:
        is_same = _text(failure) == _text(first)
        ranks_by_text.setdefault("the same" if is_same else _text(failure), []).append(rank)
    return "".join(
        f"\n\nAfter it, rank{'s' if ranks[1:] else ''} {', '.join(map(str, ranks))}: {text}"
        for text, ranks in ranks_by_text.items()
    )


def _text(failure: Failure) -> str:
    return f"{failure.headline}\n{failure.traceback}"


def _may_follow(failure: Failure) -> bool:
    """Whether the end of another rank may have caused it."""
    return failure.kind == "user" and failure.type_name != OUT_OF_STEP
