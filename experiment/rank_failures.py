"""Of several ranks that failed, which was the cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from holdfast.trial.errors import Failure

OUT_OF_STEP = "RanksOutOfStep"


def cause_of(
    failures: Sequence[tuple[int, Failure]], hosts: Mapping[int, str], *, has_refused: bool = False
) -> Failure:
    """The first cause on top, naming its rank, and below what the others said.

    A process that died is one: user code that raises because its peer is gone may be heard before.
    With `has_refused` what befell rank 0 has failed the report of the others, who may be heard
    before it, too.
    """

    def follows(told: tuple[int, Failure]) -> tuple[bool, bool]:
        rank, failure = told
        return _may_follow(failure), has_refused and rank != 0

    rank, first = min(failures, key=follows)
    others = [told for told in failures if told != (rank, first)]
    below = "".join(
        f"\n\nAfter it, rank {other}: {failure.headline}\n{failure.traceback}"
        for other, failure in others
    )
    host = first.hostname or hosts.get(rank, "")
    return replace(
        first,
        message=f"rank {rank}{f' on {host}' if host else ''}: {first.message}",
        traceback=first.traceback + below,
        hostname=host,
    )


def _may_follow(failure: Failure) -> bool:
    """Whether it may be what the end of another rank did."""
    return failure.kind == "user" and failure.type_name != OUT_OF_STEP
