"""A run that was followed by another one under its name: it can be read, but not resumed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.dataclass import dataclass
from holdfast.trial.errors import InvalidConfig

if TYPE_CHECKING:
    from holdfast.experiment.records.opened import OpenedExperiment
    from holdfast.experiment.results.result_grid import ResultGrid


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRun:
    """Run number `run` in `path`.

    `trainable` is the name of its trainable. `needs_newest`: arguments of the restore apply only
    to the newest run.
    """

    path: str
    run: int
    trainable: str
    results: ResultGrid
    is_finished: bool
    needs_newest: bool

    def as_it_is(self) -> ResultGrid:
        """The results that `fit()` returns for it. Raises InvalidConfig if trials would have to
        resume."""
        if self.needs_newest or not self.is_finished:
            raise InvalidConfig(
                f"run {self.run} in {self.path} was followed by another and cannot be resumed: "
                f"get_results() reads it. To run it again, use another name=..."
            )
        return self.results


def earlier_run(opened: OpenedExperiment, run: int, *, needs_newest: bool) -> EarlierRun | None:
    """The earlier run; None if it is the newest. Raises ExperimentNotFound, NoSuchRun,
    StorageError."""
    from holdfast.experiment.results.analysis import ExperimentAnalysis
    from holdfast.experiment.results.read_experiment import read_experiment
    from holdfast.experiment.results.result_grid import ResultGrid

    read = read_experiment(opened.place.location, run)
    if not read.is_followed:
        return None
    return EarlierRun(
        path=opened.path,
        run=run,
        trainable=read.machine.spec.trainable,
        results=ResultGrid(ExperimentAnalysis.of(read)),
        is_finished=read.machine.finished,
        needs_newest=needs_newest,
    )
