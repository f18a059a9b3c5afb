"""The module paths under which scripts import names of Ray, and where these names are.

A path is relative: `tune.tuner` is `ray.tune.tuner`, and `holdfast.tune.tuner` for scripts that
replace `ray` by `holdfast`. "" is `ray` itself.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from types import SimpleNamespace
from typing import Final

# Modules of holdfast whose names are those of Ray's module with the same path.
OWN: Final = frozenset(
    (
        *("", "air", "air.integrations", "air.integrations.comet", "air.integrations.keras"),
        *("air.integrations.mlflow", "air.integrations.wandb", "air.session"),
        *("data", "data.aggregate", "data.expressions", "data.preprocessors"),
        *("train", "train.collective", "train.huggingface", "train.huggingface.transformers"),
        *("train.lightgbm", "train.lightning", "train.tensorflow", "train.tensorflow.keras"),
        *("train.torch", "train.xgboost"),
        *("tune", "tune.integration", "tune.integration.keras", "tune.integration.lightgbm"),
        *("tune.integration.pytorch_lightning", "tune.integration.ray_train"),
        *("tune.integration.xgboost", "tune.logger", "tune.schedulers", "tune.search"),
        *("tune.stopper", "tune.utils"),
    )
)

# The library itself, of which Ray has a copy.
CLOUDPICKLE: Final = "cloudpickle"

# Other paths of the same names: those of the package in which Ray defines them, and those of older
# versions. `module: name name`, or `module` for all names of it. `a=b` is another name for `b`.
_ALIASES: Final[Mapping[str, str]] = {
    "exceptions": "tune: ActorDiedError=TrialError NodeDiedError=TrialError "
    "ObjectLostError=:ObjectLost ObjectStoreFullError=:ObjectStoreFull "
    "OutOfMemoryError=TrialError "
    "RayActorError=TuneError RayError=TuneError RaySystemError=TuneError RayTaskError=TrialError "
    "UserCodeException=TrialError WorkerCrashedError=TrialError",
    CLOUDPICKLE: CLOUDPICKLE,
    # -- air
    "air.callbacks": "air.integrations",
    "air.callbacks.keras": "air.integrations.keras",
    "air.callbacks.mlflow": "air.integrations.mlflow",
    "air.callbacks.wandb": "air.integrations.wandb",
    "air.checkpoint": "air: Checkpoint",
    "air.config": "air: CheckpointConfig FailureConfig RunConfig ScalingConfig",
    "air.result": "air: Result",
    # -- data
    "data.context": "data: DataContext",
    "data.dataset": "data: Dataset Schema",
    "data.grouped_data": "data: GroupedData",
    "data.iterator": "data: DataIterator",
    "data.preprocessor": "data.preprocessors: Preprocessor PreprocessorNotFittedException",
    "data.preprocessors.chain": "data.preprocessors: Chain",
    "data.preprocessors.concatenator": "data.preprocessors: Concatenator",
    "data.preprocessors.encoder": "data.preprocessors: Categorizer LabelEncoder MultiHotEncoder "
    "OneHotEncoder OrdinalEncoder",
    "data.preprocessors.imputer": "data.preprocessors: SimpleImputer",
    "data.preprocessors.normalizer": "data.preprocessors: Normalizer",
    "data.preprocessors.scaler": "data.preprocessors: MaxAbsScaler MinMaxScaler RobustScaler "
    "StandardScaler",
    "data.read_api": "data: from_arrow from_huggingface from_items from_numpy from_pandas "
    "from_torch range range_tensor read_binary_files read_csv read_images read_json read_parquet "
    "read_text",
    "worker": "air.session: global_worker=experiment.api.runtime_context:global_worker",
    "_private": "air.session:",
    "_private.worker": "air.session: global_worker=experiment.api.runtime_context:global_worker",
    # -- train
    "train._checkpoint": "train: Checkpoint",
    "train.backend": "train: Backend BackendConfig",
    "train.base_trainer": "train: BaseTrainer TrainingFailedError",
    "train.constants": "train: TRAIN_DATASET_KEY",
    "train.context": "train: TrainContext get_context",
    "train.data_config": "train: DataConfig",
    "train.data_parallel_trainer": "train: DataParallelTrainer",
    "train.error": "train: SessionMisuseError",
    "train.lightgbm.config": "train.lightgbm: LightGBMConfig get_network_params",
    "train.lightgbm.lightgbm_checkpoint": "train.lightgbm: LightGBMCheckpoint",
    "train.lightgbm.lightgbm_trainer": "train.lightgbm: LightGBMTrainer",
    "train.session": "air.session",
    "train.tensorflow.config": "train.tensorflow: TensorflowConfig",
    "train.tensorflow.tensorflow_checkpoint": "train.tensorflow: TensorflowCheckpoint",
    "train.tensorflow.tensorflow_trainer": "train.tensorflow: TensorflowTrainer",
    "train.tensorflow.train_loop_utils": "train.tensorflow: prepare_dataset_shard",
    "train.torch.config": "train.torch: TorchConfig",
    "train.torch.torch_checkpoint": "train.torch: TorchCheckpoint",
    "train.torch.torch_trainer": "train.torch: TorchTrainer",
    "train.torch.train_loop_utils": "train.torch: accelerate backward enable_reproducibility "
    "get_device get_devices prepare_data_loader prepare_model prepare_optimizer",
    "train.trainer": "train: TrainingIterator",
    "train.v2": "train:",
    "train.v2.api": "train:",
    "train.v2.api.callback": "train: RayTrainCallback UserCallback",
    "train.v2.api.config": "train: CheckpointConfig FailureConfig LoggingConfig RunConfig "
    "ScalingConfig",
    "train.v2.api.context": "train: TrainContext get_context",
    "train.v2.api.data_config": "train: DataConfig",
    "train.v2.api.data_parallel_trainer": "train: DataParallelTrainer",
    "train.v2.api.exceptions": "train: ControllerError NCCLHangError PreemptionError "
    "TrainingFailedError WorkerGroupError",
    "train.v2.api.preemption": "train: PreemptionInfo get_preemption_info",
    "train.v2.api.report_config": "train: CheckpointConsistencyMode CheckpointUploadMode",
    "train.v2.api.reported_checkpoint": "train: ReportedCheckpoint ReportedCheckpointStatus",
    "train.v2.api.result": "train: Result",
    "train.v2.api.train_fn_utils": "train: get_all_reported_checkpoints get_checkpoint "
    "get_context get_dataset_shard report",
    "train.v2.api.validation_config": "train: ValidationConfig ValidationFn ValidationTaskConfig",
    "train.v2.lightgbm": "train.lightgbm",
    "train.v2.lightgbm.lightgbm_trainer": "train.lightgbm: LightGBMTrainer",
    "train.v2.tensorflow": "train.tensorflow",
    "train.v2.tensorflow.tensorflow_trainer": "train.tensorflow: TensorflowTrainer",
    "train.v2.torch": "train.torch",
    "train.v2.torch.torch_trainer": "train.torch: TorchTrainer",
    "train.v2.xgboost": "train.xgboost",
    "train.v2.xgboost.xgboost_trainer": "train.xgboost: XGBoostTrainer",
    "train._internal": "train:",
    "train._internal.session": "air.session: get_session=experiment.worker.session:running "
    "get_checkpoint get_dataset_shard report",
    "train.xgboost.config": "train.xgboost: XGBoostConfig",
    "train.xgboost.xgboost_checkpoint": "train.xgboost: XGBoostCheckpoint",
    "train.xgboost.xgboost_trainer": "train.xgboost: XGBoostTrainer",
    # -- tune
    "tune.analysis": "tune: ExperimentAnalysis",
    "tune.analysis.experiment_analysis": "tune: ExperimentAnalysis",
    "tune.callback": "tune: Callback",
    "tune.context": "tune: TuneContext get_context",
    "tune.error": "tune: TuneError",
    "tune.execution": "tune:",
    "tune.execution.placement_groups": "tune: PlacementGroupFactory",
    "tune.experiment": "tune: Experiment Trial",
    "tune.experiment.experiment": "tune: Experiment",
    "tune.experiment.trial": "tune: Trial",
    "tune.integration.comet": "air.integrations.comet",
    "tune.integration.mlflow": "air.integrations.mlflow",
    "tune.integration.wandb": "air.integrations.wandb",
    "tune.logger.comet": "air.integrations.comet: CometLoggerCallback",
    "tune.logger.csv": "tune.logger: CSVLoggerCallback",
    "tune.logger.json": "tune.logger: JsonLoggerCallback",
    "tune.logger.logger": "tune.logger: LoggerCallback pretty_print",
    "tune.logger.mlflow": "air.integrations.mlflow: MLflowLoggerCallback",
    "tune.logger.tensorboardx": "tune.logger: TBXLoggerCallback",
    "tune.logger.unified": "tune.logger: UnifiedLogger",
    "tune.logger.wandb": "air.integrations.wandb: WandbLoggerCallback",
    "tune.progress_reporter": "tune: CLIReporter JupyterNotebookReporter ProgressReporter",
    "tune.registry": "tune: get_trainable_cls=experiment.worker.wrap:find_trainable register_env "
    "register_trainable",
    "tune.result_grid": "tune: ResultGrid",
    "tune.sample": "tune.search.sample",
    "tune.schedulers.async_hyperband": "tune.schedulers: ASHAScheduler AsyncHyperBandScheduler",
    "tune.schedulers.hb_bohb": "tune.schedulers: HyperBandForBOHB",
    "tune.schedulers.hyperband": "tune.schedulers: HyperBandScheduler",
    "tune.schedulers.median_stopping_rule": "tune.schedulers: MedianStoppingRule",
    "tune.schedulers.pb2": "tune.schedulers: PB2",
    "tune.schedulers.pbt": "tune.schedulers: PopulationBasedTraining "
    "PopulationBasedTrainingReplay",
    "tune.schedulers.resource_changing_scheduler": "tune.schedulers: DistributeResources "
    "DistributeResourcesToTopJob ResourceChangingScheduler",
    "tune.schedulers.trial_scheduler": "tune.schedulers: FIFOScheduler TrialScheduler",
    "tune.search.ax": "tune.search: AxSearch",
    "tune.search.basic_variant": "tune.search: BasicVariantGenerator",
    "tune.search.bayesopt": "tune.search: BayesOptSearch",
    "tune.search.bohb": "tune.search: TuneBOHB",
    "tune.search.concurrency_limiter": "tune.search: ConcurrencyLimiter",
    "tune.search.hebo": "tune.search: HEBOSearch",
    "tune.search.hyperopt": "tune.search: HyperOptSearch",
    "tune.search.nevergrad": "tune.search: NevergradSearch",
    "tune.search.optuna": "tune.search: OptunaSearch",
    "tune.search.repeater": "tune.search: Repeater",
    "tune.search.sample": "tune: choice lograndint loguniform qlograndint qloguniform qrandint "
    "qrandn quniform randint randn sample_from uniform Categorical=trial.domains:Categorical "
    "Domain=trial.domains:Domain Float=trial.domains:Float Function=trial.domains:Function "
    "Integer=trial.domains:Integer",
    "tune.search.search_algorithm": "tune.search: SearchAlgorithm",
    "tune.search.search_generator": "tune.search: SearchGenerator",
    "tune.search.searcher": "tune.search: Searcher",
    "tune.search.variant_generator": "tune.search: grid_search",
    "tune.search.zoopt": "tune.search: ZOOptSearch",
    "tune.stopper.experiment_plateau": "tune.stopper: ExperimentPlateauStopper",
    "tune.stopper.function_stopper": "tune.stopper: FunctionStopper",
    "tune.stopper.maximum_iteration": "tune.stopper: MaximumIterationStopper",
    "tune.stopper.noop": "tune.stopper: NoopStopper",
    "tune.stopper.stopper": "tune.stopper: CombinedStopper Stopper",
    "tune.stopper.timeout": "tune.stopper: TimeoutStopper",
    "tune.stopper.trial_plateau": "tune.stopper: TrialPlateauStopper",
    "tune.suggest": "tune.search",
    "tune.session": "tune",
    "tune.suggest.search": "tune.search: SearchAlgorithm",
    "tune.suggest.suggestion": "tune.search: ConcurrencyLimiter Searcher",
    "tune.syncer": "tune: SyncConfig",
    "tune.trainable": "tune: Trainable with_parameters",
    "tune.trainable.trainable": "tune: Trainable",
    "tune.trainable.trainable_fn_utils": "tune: get_checkpoint report",
    "tune.trainable.util": "tune: with_parameters with_resources",
    "tune.trial": "tune: Trial",
    "tune.tune": "tune: run run_experiments",
    "tune.tune_config": "tune: ResumeConfig TuneConfig",
    "tune.tuner": "tune: RunConfig TuneConfig Tuner",
    "tune.utils.log": "tune.utils:",
    "tune.utils.placement_groups": "tune: PlacementGroupFactory",
    "tune.utils.util": "tune.utils",
}
# Names that only scripts for Ray up to 2.6 import, of `module.name`.
OLDER: Final[Mapping[str, str]] = {
    "tune.checkpoint_dir": "experiment.worker.older:checkpoint_dir",
    "tune.is_session_enabled": "experiment.worker.older:is_session_enabled",
    **{
        f"tune.get_trial_{name}": f"air.session:get_trial_{name}"
        for name in ("dir", "id", "name", "resources")
    },
}
# Ray keeps each library's search in a package of its own, with a module in it.
_SEARCH_PACKAGES: Final = (
    *("ax", "bayesopt", "bohb", "hebo", "hyperopt", "nevergrad", "optuna", "zoopt"),
    *("basic_variant", "concurrency_limiter", "repeater"),
)

# Names that Ray's modules have as constants.
_KEYS: Final = {
    "EXPR_ERROR_FILE": "error.txt",
    "EXPR_PARAM_FILE": "params.json",
    "EXPR_PROGRESS_FILE": "progress.csv",
    "EXPR_RESULT_FILE": "result.json",
    "TIMESTAMP": "timestamp",
    "TIME_THIS_ITER_S": "time_this_iter_s",
    "TRAINING_ITERATION": "training_iteration",
}
_EXPORT_FORMATS: Final = {
    "ExportFormat": SimpleNamespace(CHECKPOINT="checkpoint", MODEL="model", ONNX="onnx", H5="h5")
}
CONSTANTS: Final[Mapping[str, Mapping[str, object]]] = {
    "": {"__version__": "2.60.0"},
    "tune.experiment.trial": _EXPORT_FORMATS,
    "tune.trial": _EXPORT_FORMATS,
    "air.constants": {
        **_KEYS,
        "EVALUATION_DATASET_KEY": "evaluation",
        "MODEL_KEY": "model",
        "TRAIN_DATASET_KEY": "train",
    },
    "train.constants": {
        "EVALUATION_DATASET_KEY": "evaluation",
        "MODEL_KEY": "model",
        "RAY_CHDIR_TO_TRIAL_DIR": "RAY_CHDIR_TO_TRIAL_DIR",
    },
    "tune.result": {
        **_KEYS,
        "CONFIG_PREFIX": "config",
        "DEFAULT_RESULTS_DIR": os.path.expanduser("~/ray_results"),
        "DEFAULT_METRIC": "_metric",
        "DONE": "done",
        "EXPERIMENT_TAG": "experiment_tag",
        "HOSTNAME": "hostname",
        "MEAN_ACCURACY": "mean_accuracy",
        "MEAN_LOSS": "mean_loss",
        "NODE_IP": "node_ip",
        "PID": "pid",
        "SHOULD_CHECKPOINT": "should_checkpoint",
        "EPISODES_THIS_ITER": "episodes_this_iter",
        "EPISODES_TOTAL": "episodes_total",
        "TIMESTEPS_THIS_ITER": "timesteps_this_iter",
        "TIMESTEPS_TOTAL": "timesteps_total",
        "TIME_TOTAL_S": "time_total_s",
        "TRIAL_ID": "trial_id",
    },
}


@cache
def aliases() -> Mapping[str, tuple[str, Mapping[str, str] | None]]:
    """The module of each other path, with the names there of those that it has; None for all."""
    found = dict(_ALIASES)
    for name in _SEARCH_PACKAGES:
        found[f"tune.suggest.{name}"] = found[f"tune.search.{name}"]
        for package in ("search", "suggest"):
            found[f"tune.{package}.{name}.{name}_search"] = found[f"tune.search.{name}"]
    found["tune.search.bohb.bohb_search"] = found["tune.search.bohb"]
    return {path: _parsed(home) for path, home in found.items()}


def _parsed(home: str) -> tuple[str, Mapping[str, str] | None]:
    module, colon, listed = home.partition(":")
    pairs = (name.partition("=") for name in listed.split())
    return module, {name: other or name for name, _, other in pairs} if colon else None


def home_of(path: str) -> tuple[str, Mapping[str, str] | None]:
    """The path of the module that has the names of `path`, and which; None for all."""
    module, names = aliases().get(path, (path, None))
    if module in OWN:
        return module, names
    return home_of(module) if names is None and module != path else (module, names)


def name_at(path: str, name: str) -> tuple[str, str]:
    """The path of the module that has `ray.path.name`, and the name there."""
    module, names = home_of(path)
    return module, name if names is None else names.get(name, name)


@cache
def served() -> frozenset[str]:
    """The paths of all modules that have a name."""
    return frozenset({*OWN, *aliases(), *CONSTANTS})
