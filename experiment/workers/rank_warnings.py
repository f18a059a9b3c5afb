"""Warnings about ranks whose reports do not match, each shown once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from holdfast.scheduler.barrier import Met


class RankWarnings:
    """The warnings about one attempt of a trial."""

    def __init__(self, trial_id: str, warn: Callable[[str], None]) -> None:
        self._trial_id = trial_id
        self._warn = warn
        self._has_told_keys = self._has_told_clashes = False

    def about_keys(self, met: Met) -> None:
        """Warn that ranks report different metrics."""
        if met.other_keys and not self._has_told_keys:
            self._has_told_keys = True
            rank, keys = next(iter(met.other_keys.items()))
            self._warn(
                f"trial {self._trial_id}: rank {rank} does not report the same metrics "
                f"as rank 0 ({', '.join(keys)}): those of rank 0 are kept"
            )

    def about_clashes(self, clashes: Mapping[str, Sequence[int]]) -> None:
        """Warn that several ranks put a file of the same name into a checkpoint."""
        if clashes and not self._has_told_clashes:
            self._has_told_clashes = True
            name, ranks = next(iter(clashes.items()))
            more = f" and {len(clashes) - 1} other files" if len(clashes) > 1 else ""
            self._warn(
                f"trial {self._trial_id}: {name}{more} in one checkpoint from ranks "
                f"{', '.join(map(str, ranks))}: that of rank {ranks[-1]} is kept. Give each "
                f"rank's files different names"
            )
