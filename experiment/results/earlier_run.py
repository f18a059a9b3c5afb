"""A run that another one followed under its name: it can be read, and not be resumed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.dataclass import dataclass
from holdfast.trial.errors import InvalidConfig

if TYPE_CHECKING:
    from holdfast.experiment.records.opened import OpenedExperiment
    from holdfast.experiment.results.result_grid import ResultGrid


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRun:
    """Number `run` of those in `path`; `trainable` is the name of what it ran. `goes_on`: the
    restore asks for what only the newest can do."""

    path: str
    run: int
    trainable: str
    results: ResultGrid
    is_finished: bool
    goes_on: bool

    def as_it_is(self) -> ResultGrid:
        """What `fit()` returns of it. Raises InvalidConfig where trials would have to resume."""
        if self.goes_on or not self.is_finished:
            raise InvalidConfig(
                f"run {self.run} in {self.path} was followed by another and cannot be resumed: "
                f"get_results() reads it. Begin it again under another RunConfig(name=...)"
            )
        return self.results


def earlier_run(opened: OpenedExperiment, run: int, *, goes_on: bool) -> EarlierRun | None:
    """None where it is the newest. Raises ExperimentNotFound, NoSuchRun, StorageError."""
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
        goes_on=goes_on,
    )
