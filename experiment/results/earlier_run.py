"""A run that another one followed under its name: it can be read, and not be resumed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.settings import Settings
from holdfast.trial.config import RunConfig
from holdfast.trial.errors import InvalidConfig

if TYPE_CHECKING:
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


def earlier_run(
    path: str | os.PathLike[str] | RunConfig, filesystem: Any, run: int, *, goes_on: bool
) -> EarlierRun | None:
    """None where it is the newest. Raises ExperimentNotFound, NoSuchRun, StorageError."""
    from holdfast.experiment.records.place import place_of
    from holdfast.experiment.results.analysis import ExperimentAnalysis, load_experiment
    from holdfast.experiment.results.result_grid import ResultGrid

    path, filesystem = place_of(path, filesystem, Settings.read(os.environ))
    read = load_experiment(path, filesystem, run)
    if not read.is_followed:
        return None
    return EarlierRun(
        path=path,
        run=run,
        trainable=read.machine.spec.trainable,
        results=ResultGrid(ExperimentAnalysis.of(read)),
        is_finished=read.machine.finished,
        goes_on=goes_on,
    )
