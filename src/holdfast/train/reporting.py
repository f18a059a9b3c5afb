"""The reports of the frameworks' callbacks: chosen metrics, and a checkpoint from rank 0."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any, Self

from holdfast.dataclass import dataclass
from holdfast.experiment.worker.context import get_context, report, staging_directory
from holdfast.experiment.worker.session import tell
from holdfast.plain_numbers import made_of_numbers
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.trial.errors import InvalidConfig, InvalidMetrics


class ModelCheckpoint(Checkpoint):
    """A checkpoint with one model. What `saved` makes is in a temporary directory that is
    removed with the object."""

    @classmethod
    def saved(cls, filename: str, save: Callable[[str], Any]) -> Self:
        """A checkpoint with the file that `save` writes to the path that it gets."""
        made = cls._temporary()
        save(os.path.join(made.path, filename))
        return made


# One name, some names, or a dict from the names to report to the framework's; None means all.
Metrics = str | Sequence[str] | Mapping[str, str] | None
# Writes the model to this path.
Save = Callable[[str], object]


def chosen(found: Mapping[str, Any], metrics: Metrics) -> dict[str, Any]:
    """The metrics to report, out of those that the framework has.

    Raises InvalidMetrics for a name that the framework does not have, and lists those that it has.
    """
    wanted = by_name(metrics)
    if wanted is None:
        return dict(found)
    missing = [name for name in wanted.values() if name not in found]
    if missing:
        raise InvalidMetrics(
            f"metrics={metrics!r}: there is no {missing[0]!r} to report; what there is: "
            f"{', '.join(map(repr, sorted(found))) or 'nothing'}"
        )
    return {name: found[key] for name, key in wanted.items()}


def by_name(metrics: Metrics) -> dict[str, str] | None:
    """The framework's names by the names to report them as; None means all."""
    if metrics is None:
        return None
    names = (metrics,) if isinstance(metrics, str) else metrics
    return dict(names) if isinstance(names, Mapping) else {name: name for name in names}


def check_metrics(metrics: Any) -> None:
    """Raises InvalidConfig if `metrics` is not a choice of metrics."""
    if metrics is None or isinstance(metrics, (str, Mapping)):
        return
    if not isinstance(metrics, Sequence) or not all(isinstance(name, str) for name in metrics):
        raise InvalidConfig(
            f"metrics={metrics!r} must be a name, a list of names, or a dict of the framework's "
            f"names by those to report them as"
        )


def report_saved(metrics: Mapping[str, Any], filename: str, save: Save) -> None:
    """Report; rank 0 adds a checkpoint with the file that `save` writes."""
    if get_context().get_world_rank():
        report(metrics)
        return
    staged = staging_directory()
    save(os.path.join(staged, filename))
    report(metrics, checkpoint=Checkpoint.from_directory(staged))


def say_nothing_reported(why: str) -> None:
    """Warns of a callback that reported nothing: the experiment has no row."""
    tell(f"holdfast: nothing was reported of this training: {why}")


@contextmanager
def saved(checkpoint: Checkpoint, filename: str) -> Iterator[str]:
    """The path of a file in a checkpoint. Raises FileNotFoundError, which lists its files."""
    with checkpoint.as_directory() as folder:
        path = os.path.join(folder, filename)
        if not os.path.exists(path):
            there = sorted(name for name in os.listdir(folder) if not name.startswith("."))
            raise FileNotFoundError(
                f"there is no {filename!r} in {checkpoint}; what there is: "
                f"{', '.join(map(repr, there)) or 'nothing'}. Give the name that it was saved "
                f"under: get_model(checkpoint, filename=...)"
            )
        yield path


class WithoutCheckpoints:
    """Mixin: a callback that reports as its base does, and never saves the model."""

    def __init__(
        self,
        metrics: Metrics = None,
        results_postprocessing_fn: Callable[[dict[str, Any]], Mapping[str, Any]] | None = None,
    ) -> None:
        super().__init__(  # type: ignore[call-arg]
            metrics=metrics,
            checkpoint_at_end=False,
            results_postprocessing_fn=results_postprocessing_fn,
        )


@made_of_numbers
@dataclass(slots=True)
class RoundReports:
    """Reports the chosen metrics of each boosting round, and saves the model after some rounds.

    A callback learns only after a round whether that was the last one. So it holds the row of a
    round, and reports it when the next round begins or the training ends.

    Raises InvalidConfig.
    """

    metrics: Metrics
    filename: str
    frequency: int
    checkpoint_at_end: bool
    results_postprocessing_fn: Callable[[dict[str, Any]], Mapping[str, Any]] | None = None
    _held: Mapping[str, Any] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        check_metrics(self.metrics)
        if not isinstance(self.frequency, int) or self.frequency < 0:
            raise InvalidConfig(
                f"frequency={self.frequency!r} must be a number of rounds, 0 for never"
            )

    def hold(self, found: Mapping[str, Any]) -> None:
        """Keep the metrics of a round for `report`. Raises InvalidMetrics."""
        self._held = self.row(found)

    def report(self, rounds: int, save: Save, *, is_last: bool) -> None:
        """Report the row that is held, if any, as one iteration. The model has `rounds` rounds."""
        row, self._held = self._held, None
        if row is None:
            return
        if self.saves(rounds, is_last=is_last):
            report_saved(row, self.filename, save)
        else:
            report(row)

    def row(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """The metrics to report of a round. Raises InvalidMetrics."""
        row = chosen(found, self.metrics)
        if self.results_postprocessing_fn is None:
            return row
        made = self.results_postprocessing_fn(row)
        if not isinstance(made, Mapping):
            raise InvalidMetrics(
                f"results_postprocessing_fn must return a dict of metrics, not {made!r:.100}"
            )
        return dict(made)

    def saves(self, rounds: int, *, is_last: bool) -> bool:
        """True if the model is saved after this many rounds."""
        if is_last and self.checkpoint_at_end:
            return True
        return bool(self.frequency) and rounds % self.frequency == 0
