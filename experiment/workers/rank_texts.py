"""Texts that all ranks exchange: each sends one, and gets those of all. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.experiment.workers.rank_failures import OUT_OF_STEP
from holdfast.trial.errors import Failure


class RankTexts:
    """The texts of one exchange at a time."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._texts: dict[int, str] = {}

    @property
    def waiting(self) -> list[int]:
        """The ranks that have sent theirs, and wait for the others."""
        return list(self._texts)

    def missing(self) -> list[int]:
        return [rank for rank in range(self._ranks) if rank not in self._texts]

    def add(self, rank: int, text: str) -> None:
        """Raises ValueError if this rank has sent one."""
        if rank in self._texts:
            raise ValueError("it has sent its text already")
        self._texts[rank] = text

    def take(self) -> list[str] | None:
        """The texts by rank, and the next exchange begins; None while some are missing."""
        if self.missing():
            return None
        texts = [self._texts[rank] for rank in range(self._ranks)]
        self._texts.clear()
        return texts


def apart(waiting: Iterable[int], where: str, rank: int, other: str) -> Failure:
    """The failure of ranks that can never meet: some wait `where`, and `rank` is elsewhere."""
    ranks = ", ".join(map(str, waiting))
    return Failure(
        kind="user",
        type_name=OUT_OF_STEP,
        message=f"rank {rank} is at {other} while rank {ranks} waits at {where}: every rank must "
        f"call report(), barrier() and the like in the same order",
    )
