"""`from holdfast import tune`: the names of `ray.tune`."""

from holdfast.experiment.session import (
    get_checkpoint,
    get_context,
    report,
    staging_directory,
)
from holdfast.experiment.tuner import Tuner
from holdfast.experiment.wrap import register_trainable, with_parameters, with_resources
from holdfast.syncer.checkpoint import Checkpoint
from holdfast.trial.config import (
    CheckpointConfig,
    FailureConfig,
    ResumeConfig,
    RunConfig,
    SyncConfig,
    TuneConfig,
)
from holdfast.trial.errors import TrialError, TuneError
from holdfast.trial.resources import PlacementGroupFactory
from holdfast.trial.space import (
    choice,
    grid_search,
    lograndint,
    loguniform,
    qlograndint,
    qloguniform,
    qrandint,
    qrandn,
    quniform,
    randint,
    randn,
    sample_from,
    uniform,
)
from holdfast.trial.stopper import Stopper
