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
    below = _below(first, [told for told in failures if told != (rank, first)])
    host = first.hostname or hosts.get(rank, "")
    return replace(
        first,
        message=f"rank {rank}{f' on {host}' if host else ''}: {first.message}",
        traceback=first.traceback + below,
        hostname=host,
    )


def _below(first: Failure, others: Sequence[tuple[int, Failure]]) -> str:
    """Each thing that was said once: a bug in the loop is met by all ranks alike."""
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
    """Whether it may be what the end of another rank did."""
    return failure.kind == "user" and failure.type_name != OUT_OF_STEP
