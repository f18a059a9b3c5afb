"""Of several ranks that failed, which was the cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from holdfast.trial.errors import Failure

OUT_OF_STEP = "RanksOutOfStep"


def cause_of(failures: Sequence[tuple[int, Failure]], hosts: Mapping[int, str]) -> Failure:
    """The first cause on top, naming its rank, and below what the others said.

    A process that died is one: user code that raises because its peer is gone may be heard before.
    """
    rank, first = min(failures, key=lambda told: _may_follow(told[1]))
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
