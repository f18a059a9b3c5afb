"""`from holdfast import tune`: the names of `ray.tune`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazy

if TYPE_CHECKING:
    from holdfast.experiment.analysis import ExperimentAnalysis as ExperimentAnalysis
    from holdfast.experiment.callbacks import (
        Callback as Callback,
    )
    from holdfast.experiment.callbacks import (
        LoggerCallback as LoggerCallback,
    )
    from holdfast.experiment.context import (
        TuneContext as TuneContext,
    )
    from holdfast.experiment.context import (
        get_checkpoint as get_checkpoint,
    )
    from holdfast.experiment.context import (
        get_context as get_context,
    )
    from holdfast.experiment.context import (
        report as report,
    )
    from holdfast.experiment.context import (
        staging_directory as staging_directory,
    )
    from holdfast.experiment.reporters import (
        CLIReporter as CLIReporter,
    )
    from holdfast.experiment.reporters import (
        JupyterNotebookReporter as JupyterNotebookReporter,
    )
    from holdfast.experiment.reporters import (
        ProgressReporter as ProgressReporter,
    )
    from holdfast.experiment.result import Result as Result
    from holdfast.experiment.result_grid import ResultGrid as ResultGrid
    from holdfast.experiment.trainable import Trainable as Trainable
    from holdfast.experiment.tuner import Tuner as Tuner
    from holdfast.experiment.wrap import (
        register_trainable as register_trainable,
    )
    from holdfast.experiment.wrap import (
        with_parameters as with_parameters,
    )
    from holdfast.experiment.wrap import (
        with_resources as with_resources,
    )
    from holdfast.syncer.checkpoint import Checkpoint as Checkpoint
    from holdfast.trial.checkpoint import CheckpointUploadMode as CheckpointUploadMode
    from holdfast.trial.config import CheckpointConfig as CheckpointConfig
    from holdfast.trial.config import FailureConfig as FailureConfig
    from holdfast.trial.config import RunConfig as RunConfig
    from holdfast.trial.config import SyncConfig as SyncConfig
    from holdfast.trial.errors import TrialError as TrialError
    from holdfast.trial.errors import TuneError as TuneError
    from holdfast.trial.resources import PlacementGroupFactory as PlacementGroupFactory
    from holdfast.trial.space import (
        choice as choice,
    )
    from holdfast.trial.space import (
        grid_search as grid_search,
    )
    from holdfast.trial.space import (
        lograndint as lograndint,
    )
    from holdfast.trial.space import (
        loguniform as loguniform,
    )
    from holdfast.trial.space import (
        qlograndint as qlograndint,
    )
    from holdfast.trial.space import (
        qloguniform as qloguniform,
    )
    from holdfast.trial.space import (
        qrandint as qrandint,
    )
    from holdfast.trial.space import (
        qrandn as qrandn,
    )
    from holdfast.trial.space import (
        quniform as quniform,
    )
    from holdfast.trial.space import (
        randint as randint,
    )
    from holdfast.trial.space import (
        randn as randn,
    )
    from holdfast.trial.space import (
        sample_from as sample_from,
    )
    from holdfast.trial.space import (
        uniform as uniform,
    )
    from holdfast.trial.stopper import Stopper as Stopper
    from holdfast.trial.tuning import ResumeConfig as ResumeConfig
    from holdfast.trial.tuning import TuneConfig as TuneConfig
    from holdfast.tune import schedulers as schedulers
    from holdfast.tune import search as search
    from holdfast.tune import stopper as stopper
    from holdfast.tune.scheduling import create_scheduler as create_scheduler
    from holdfast.tune.search.creating import create_searcher as create_searcher

_HOMES = {
    "ExperimentAnalysis": "holdfast.experiment.analysis",
    "Callback": "holdfast.experiment.callbacks",
    "LoggerCallback": "holdfast.experiment.callbacks",
    "CLIReporter": "holdfast.experiment.reporters",
    "JupyterNotebookReporter": "holdfast.experiment.reporters",
    "ProgressReporter": "holdfast.experiment.reporters",
    "Result": "holdfast.experiment.result",
    "ResultGrid": "holdfast.experiment.result_grid",
    "TuneContext": "holdfast.experiment.context",
    "get_checkpoint": "holdfast.experiment.context",
    "get_context": "holdfast.experiment.context",
    "report": "holdfast.experiment.context",
    "staging_directory": "holdfast.experiment.context",
    "Trainable": "holdfast.experiment.trainable",
    "Tuner": "holdfast.experiment.tuner",
    "register_trainable": "holdfast.experiment.wrap",
    "with_parameters": "holdfast.experiment.wrap",
    "with_resources": "holdfast.experiment.wrap",
    "Checkpoint": "holdfast.syncer.checkpoint",
    "CheckpointUploadMode": "holdfast.trial.checkpoint",
    "CheckpointConfig": "holdfast.trial.config",
    "FailureConfig": "holdfast.trial.config",
    "ResumeConfig": "holdfast.trial.tuning",
    "RunConfig": "holdfast.trial.config",
    "SyncConfig": "holdfast.trial.config",
    "TuneConfig": "holdfast.trial.tuning",
    "TrialError": "holdfast.trial.errors",
    "TuneError": "holdfast.trial.errors",
    "PlacementGroupFactory": "holdfast.trial.resources",
    "choice": "holdfast.trial.space",
    "grid_search": "holdfast.trial.space",
    "lograndint": "holdfast.trial.space",
    "loguniform": "holdfast.trial.space",
    "qlograndint": "holdfast.trial.space",
    "qloguniform": "holdfast.trial.space",
    "qrandint": "holdfast.trial.space",
    "qrandn": "holdfast.trial.space",
    "quniform": "holdfast.trial.space",
    "randint": "holdfast.trial.space",
    "randn": "holdfast.trial.space",
    "sample_from": "holdfast.trial.space",
    "uniform": "holdfast.trial.space",
    "Stopper": "holdfast.trial.stopper",
    "create_scheduler": "holdfast.tune.scheduling",
    "create_searcher": "holdfast.tune.search.creating",
}
_MODULES = {name: f"{__name__}.{name}" for name in ("schedulers", "search", "stopper")}

__getattr__, __dir__ = lazy(__name__, {**_HOMES, **_MODULES})
__all__ = list(_HOMES)
