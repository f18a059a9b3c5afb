"""Names of Ray that holdfast does not have: what to use, and which section of docs/differences.md
has more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from holdfast.dataclass import dataclass
from holdfast.replaced import REPLACED

PAGE: Final = "docs/differences.md"
NOT_YET: Final = "not-there-yet"
_TASKS: Final = "tasks-actors-and-what-else-is-in-ray"


@dataclass(frozen=True, slots=True)
class Missing:
    """What to use instead, and the section of PAGE that has more."""

    use: str
    section: str


# Packages of Ray of which holdfast has nothing. Each of their names can be imported.
PACKAGES: Final[Mapping[str, Missing]] = {
    "actor": Missing("processes: there are no actors", _TASKS),
    "autoscaler": Missing("holdfast.init(cluster=...), with Slurm nodes that come and go", _TASKS),
    "cluster_utils": Missing("holdfast.init(cluster=holdfast.cluster.Local(agents=...))", _TASKS),
    "dag": Missing("plain Python calls: there are no tasks", _TASKS),
    "experimental": Missing("the names of holdfast itself", _TASKS),
    "job_submission": Missing("`holdfast queue add -- python script.py`", _TASKS),
    "llm": Missing("Ray itself", _TASKS),
    "rllib": Missing("Ray itself: holdfast has no reinforcement learning", _TASKS),
    "runtime_env": Missing("a dict, as in holdfast.init(runtime_env={'env_vars': {...}})", _TASKS),
    "serve": Missing("Ray itself: holdfast serves no models", _TASKS),
    "util": Missing("plain Python: it belongs to tasks and actors", _TASKS),
    "train.callbacks": Missing(
        "train.report() and tune.Callback, in RunConfig(callbacks=[...])", NOT_YET
    ),
    "train.rl": Missing("Ray itself: holdfast has no reinforcement learning", _TASKS),
    "train.sklearn": Missing("tune.Tuner(function), which fits the estimator", NOT_YET),
    **dict.fromkeys(
        ("train.batch_predictor", "train.predictor"),
        Missing("checkpoint.as_directory(), and the model itself", NOT_YET),
    ),
    **dict.fromkeys(
        ("tune.examples", "tune.utils.mock", "tune.utils.mock_trainable"),
        Missing("a copy of that file of Ray's, next to the script", NOT_YET),
    ),
    **dict.fromkeys(
        (
            *("tune.cluster_info", "tune.durable_trainable", "tune.execution.trial_runner"),
            *("tune.execution.tune_controller", "tune.function_runner", "tune.impl"),
            *("tune.ray_trial_executor", "tune.trainable.function_trainable"),
            *("tune.trial_executor", "tune.trial_runner", "tune.web_server"),
        ),
        Missing("tune.Tuner(trainable, ...).fit(): this is inside Ray's own loop", NOT_YET),
    ),
    **{
        f"tune.{package}.{name}": Missing("tune.search.OptunaSearch()", NOT_YET)
        for package in ("search", "suggest")
        for name in ("dragonfly", "flaml", "sigopt", "skopt")
    },
    **dict.fromkeys(
        (
            *("train.horovod", "tune.integration.horovod", "tune.integration.tensorflow"),
            "tune.integration.torch",
        ),
        Missing("tune.Tuner(holdfast.train.torch.TorchTrainer(...))", NOT_YET),
    ),
    "workflow": Missing("a script, which resumes when it is started again", _TASKS),
}

_NO_TASKS: Final = "nothing: there are no tasks and actors"
_READ_FILES: Final = (
    "data.from_arrow(table) or data.from_pandas(frame), with the library's own reader"
)
# By module path: what to use, and the names that are replaced so. Those that REPLACED has are not
# here.
MISSING: Final[Sequence[tuple[str, str, str]]] = (
    (
        "",
        _NO_TASKS,
        "ActorClassID ActorID ClientBuilder DynamicObjectRefGenerator FunctionID JobID Language "
        "NodeID ObjectID ObjectRefGenerator PlacementGroupID SCRIPT_MODE TaskID UniqueID "
        "WORKER_MODE WorkerID cancel cpp_function internal java_actor_class java_function method "
        "widgets",
    ),
    ("", "holdfast.init(cluster=holdfast.cluster.Ray(address))", "client"),
    ("", "`holdfast show` and the progress table", "timeline"),
    ("", "Python's own logging", "LoggingConfig"),
    ("air", "a dict of NumPy arrays, a pandas DataFrame or an Arrow table", "DataBatchType"),
    ("air", "tune.PlacementGroupFactory", "AcquiredResources ResourceRequest"),
    (
        "data",
        _READ_FILES,
        "Catalog CatalogAccessMode ClickHouseTableSettings DatabricksUnityCatalog "
        "Datasource KafkaAuthConfig ReadTask ReaderFormat ResolvedSource "
        "from_arrow_refs from_numpy_refs from_pandas_refs read_lerobot read_mcap",
    ),
    (
        "data",
        "dataset.write_parquet(path), write_csv(path) or write_json(path)",
        "BlockBasedFileDatasink Datasink RowBasedFileDatasink SaveMode SinkMode",
    ),
    (
        "data",
        "nothing: a dataset is read in the workers, and has no engine",
        "DatasetContext DatasetSummary FileShuffleConfig MixStoppingCondition NodeIdStr "
        "RandomSeedConfig list_stats_summaries",
    ),
    ("data", "data.DataIterator", "DatasetIterator"),
    ("data", "the schema of pyarrow", "Schema"),
    ("train", "holdfast.train.DataParallelTrainer, with a train_loop_per_worker", "BaseTrainer"),
    ("train", "train.BackendConfig, whose joined(rank) each rank enters", "Backend"),
    ("train", "train.report() in the training loop", "TrainingIterator"),
    ("train", "tune.TuneError", "SessionMisuseError"),
    ("train", "tune.Callback, in RunConfig(callbacks=[...])", "RayTrainCallback"),
    (
        "train.lightgbm",
        "pandas' own methods",
        "normalize_pandas_for_lightgbm",
    ),
    (
        "tune.logger",
        "tune.logger.LoggerCallback, in RunConfig(callbacks=[...]): files of JSON, CSV and "
        "TensorBoard are written without one",
        "CSVLogger DEFAULT_LOGGERS ExperimentLogger JsonLogger LegacyLoggerCallback Logger "
        "LoggerRegistry MLFLowLogger MLFLogger NoopLogger TBXLogger TF2Logger TFLogger "
        "UnifiedLogger",
    ),
    (
        "tune.search.variant_generator",
        "tune.search.BasicVariantGenerator, or tune.Tuner(trainable, param_space=...).fit()",
        "format_vars generate_variants",
    ),
    (
        "tune.utils",
        "a short function of your own",
        "date_str force_on_current_node unflatten_dict unflatten_list_dict",
    ),
    ("tune", "tune.ExperimentAnalysis(path)", "Analysis"),
    ("tune", "the trainable itself, with a storage_path in storage", "durable"),
    ("tune", "tune.report(metrics)", "track"),
    ("tune", "tune.with_resources(trainable, {'cpu': 1, 'gpu': 1})", "Resources"),
    (
        "air.integrations.wandb",
        "air.integrations.wandb.setup_wandb(config) in the function, or WandbLoggerCallback in "
        "RunConfig(callbacks=[...])",
        "WandbLogger WandbTrainableMixin wandb_mixin",
    ),
    (
        "air.integrations.mlflow",
        "air.integrations.mlflow.setup_mlflow(config) in the function, or MLflowLoggerCallback in "
        "RunConfig(callbacks=[...])",
        "MLFlowLogger MLflowLogger MLflowTrainableMixin mlflow_mixin",
    ),
    ("tune.utils", "`holdfast show`, which has what each trial used", "UtilMonitor"),
    ("tune.utils", "nothing: a trial's GPUs are free when it starts", "wait_for_gpu"),
    ("tune.utils", "a plain dict", "warn_if_slow"),
    ("tune.utils", "cloudpickle.dumps(object)", "diagnose_serialization"),
    ("tune.utils", "RunConfig(verbose=...)", "Verbosity set_verbosity has_verbosity"),
    (
        "exceptions",
        "tune.TuneError and tune.TrialError",
        "ActorAlreadyExistsError ActorHandleNotFoundError ActorPlacementGroupRemoved "
        "ActorUnavailableError ActorUnschedulableError AsyncioActorExit AuthenticationError "
        "CrossLanguageError GetTimeoutError LocalRayletDiedError ObjectFetchTimedOutError "
        "ObjectFreedError ObjectReconstructionFailedError ObjectRefStreamEndOfStreamError "
        "OufOfBandObjectRefSerializationException OutOfDiskError OwnerDiedError "
        "PendingCallsLimitExceeded PlasmaObjectNotAvailable RayCgraphCapacityExceeded "
        "RayChannelError RayChannelTimeoutError RayDirectTransportError "
        "ReferenceCountingAssertionError RpcError RuntimeEnvSetupError "
        "StreamingGeneratorReplayInconsistentError TaskCancelledError TaskPlacementGroupRemoved "
        "TaskUnschedulableError UnserializableException",
    ),
)
_SECTIONS: Final = {"": _TASKS, "data": "datasets", "data.preprocessors": "datasets"}


def package_of(path: str) -> Missing | None:
    """What to use instead of the package of which the module is, if holdfast has nothing of it."""
    parts = path.split(".")
    inner = (".".join(parts[:count]) for count in range(1, len(parts) + 1))
    return next((PACKAGES[name] for name in inner if name in PACKAGES), None)


def missing(path: str, name: str) -> Missing | None:
    """What to use for a name of Ray that holdfast does not have; None if it is not known."""
    package = package_of(f"{path}.{name}".lstrip("."))
    if package is not None:
        return package
    section = _SECTIONS.get(path, NOT_YET)
    if (use := REPLACED.get(f"holdfast.{path}".rstrip("."), {}).get(name)) is not None:
        return Missing(use, section)
    use = next((use for at, use, names in MISSING if at == path and name in names.split()), None)
    return None if use is None else Missing(use, section)
