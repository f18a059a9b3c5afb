"""What a framework's callback reports: which of its metrics, and a checkpoint of rank 0's."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from holdfast.experiment.worker.context import get_context, report, staging_directory
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.trial.errors import InvalidConfig, InvalidMetrics

# One name, some names, or the framework's names by those that they are reported as; None is all.
Metrics = str | Sequence[str] | Mapping[str, str] | None
# Writes the model to this path.
Save = Callable[[str], object]


def chosen(found: Mapping[str, Any], metrics: Metrics) -> dict[str, Any]:
    """Of what the framework says, what is to be reported.

    Raises InvalidMetrics for a name that the framework does not know, with those that it does.
    """
    if metrics is None:
        return dict(found)
    names = (metrics,) if isinstance(metrics, str) else metrics
    wanted = dict(names) if isinstance(names, Mapping) else {name: name for name in names}
    missing = [name for name in wanted.values() if name not in found]
    if missing:
        raise InvalidMetrics(
            f"metrics={metrics!r}: there is no {missing[0]!r} to report; what there is: "
            f"{', '.join(map(repr, sorted(found))) or 'nothing'}"
        )
    return {name: found[key] for name, key in wanted.items()}


def check_metrics(metrics: Any) -> None:
    """Raises InvalidConfig for what is no choice of metrics."""
    if metrics is None or isinstance(metrics, (str, Mapping)):
        return
    if not isinstance(metrics, Sequence) or not all(isinstance(name, str) for name in metrics):
        raise InvalidConfig(
            f"metrics={metrics!r} must be a name, a list of names, or a dict of the framework's "
            f"names by those to report them as"
        )


def report_saved(metrics: Mapping[str, Any], filename: str, save: Save) -> None:
    """Report with a checkpoint that `save` writes, in rank 0, as this file."""
    if get_context().get_world_rank():
        report(metrics)
        return
    staged = staging_directory()
    save(os.path.join(staged, filename))
    report(metrics, checkpoint=Checkpoint.from_directory(staged))


def say_nothing_reported(why: str) -> None:
    """For who has a callback that reports, and would find an experiment without a row."""
    print(f"holdfast: nothing was reported of this training: {why}", file=sys.stderr)


@contextmanager
def saved(checkpoint: Checkpoint, filename: str) -> Iterator[str]:
    """The path of a file in a checkpoint. Raises FileNotFoundError that names those there are."""
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
