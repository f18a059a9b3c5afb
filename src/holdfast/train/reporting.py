"""What a framework's callback reports: the chosen metrics, and a checkpoint from rank 0."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from holdfast.experiment.worker.context import get_context, report, staging_directory
from holdfast.experiment.worker.session import tell
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.trial.errors import InvalidConfig, InvalidMetrics

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
