"""`from holdfast import tune`: the names of `ray.tune`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy import lazy

if TYPE_CHECKING:
    from holdfast.api.load_experiment import load as load
    from holdfast.api.run import Experiment as Experiment
    from holdfast.api.run import run as run
    from holdfast.api.run import run_experiments as run_experiments
    from holdfast.api.tuner import Tuner as Tuner
    from holdfast.experiment.callbacks.callback import Callback as Callback
    from holdfast.experiment.callbacks.callback import LoggerCallback as LoggerCallback
    from holdfast.experiment.callbacks.trial_view import TrialView as TrialView
    from holdfast.experiment.progress.reporters import CLIReporter as CLIReporter
    from holdfast.experiment.progress.reporters import (
        JupyterNotebookReporter as JupyterNotebookReporter,
    )
    from holdfast.experiment.progress.reporters import ProgressReporter as ProgressReporter
    from holdfast.experiment.start.short_names import create_scheduler as create_scheduler
    from holdfast.experiment.start.short_names import create_searcher as create_searcher
    from holdfast.experiment.worker.command.trainable import CommandTrainable as CommandTrainable
    from holdfast.experiment.worker.context import TuneContext as TuneContext
    from holdfast.experiment.worker.context import get_checkpoint as get_checkpoint
    from holdfast.experiment.worker.context import get_context as get_context
    from holdfast.experiment.worker.context import report as report
    from holdfast.experiment.worker.context import staging_directory as staging_directory
    from holdfast.experiment.worker.trainables import Trainable as Trainable
    from holdfast.experiment.worker.trainables import register_trainable as register_trainable
    from holdfast.experiment.worker.trainables import with_parameters as with_parameters
    from holdfast.experiment.worker.trainables import with_resources as with_resources
    from holdfast.results.result import Result as Result
    from holdfast.results.result_grid import ExperimentAnalysis as ExperimentAnalysis
    from holdfast.results.result_grid import ResultGrid as ResultGrid
    from holdfast.syncer.checkpoint.checkpoint import Checkpoint as Checkpoint
    from holdfast.trial.config import CheckpointConfig as CheckpointConfig
    from holdfast.trial.config import FailureConfig as FailureConfig
    from holdfast.trial.config import ResumeConfig as ResumeConfig
    from holdfast.trial.config import RunConfig as RunConfig
    from holdfast.trial.config import SyncConfig as SyncConfig
    from holdfast.trial.config import TuneConfig as TuneConfig
    from holdfast.trial.errors import TrialError as TrialError
    from holdfast.trial.errors import TuneError as TuneError
    from holdfast.trial.resources import PlacementGroupFactory as PlacementGroupFactory
    from holdfast.trial.space import choice as choice
    from holdfast.trial.space import grid_search as grid_search
    from holdfast.trial.space import lograndint as lograndint
    from holdfast.trial.space import loguniform as loguniform
    from holdfast.trial.space import qlograndint as qlograndint
    from holdfast.trial.space import qloguniform as qloguniform
    from holdfast.trial.space import qrandint as qrandint
    from holdfast.trial.space import qrandn as qrandn
    from holdfast.trial.space import quniform as quniform
    from holdfast.trial.space import randint as randint
    from holdfast.trial.space import randn as randn
    from holdfast.trial.space import sample_from as sample_from
    from holdfast.trial.space import uniform as uniform
    from holdfast.trial.stoppers import Stopper as Stopper
    from holdfast.trial.trial import CheckpointUploadMode as CheckpointUploadMode
    from holdfast.tune import integration as integration
    from holdfast.tune import logger as logger
    from holdfast.tune import schedulers as schedulers
    from holdfast.tune import search as search
    from holdfast.tune import stopper as stopper
    from holdfast.tune import utils as utils

    Trial = TrialView

__getattr__, __dir__, __all__ = lazy(__name__)
