"""In what names of Ray differ here, and the parameters that they do not have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

_SEARCHES: Final = " ".join(
    f"tune.search.{name}"
    for name in (
        *("AxSearch", "BayesOptSearch", "HEBOSearch", "HyperOptSearch", "NevergradSearch"),
        *("TuneBOHB", "ZOOptSearch", "create_searcher"),
    )
)
_TRAINERS: Final = (
    "train.data_parallel_trainer.DataParallelTrainer train.DataParallelTrainer "
    "train.lightgbm.LightGBMTrainer train.tensorflow.TensorflowTrainer train.torch.TorchTrainer "
    "train.xgboost.XGBoostTrainer"
)
# By section of PAGE: the names, and what differs. The first sentence for a name counts.
DIFFERENCES: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "start-stop-resume": (
        (
            "cluster_resources available_resources nodes",
            "this machine's before a run; the nodes of a cluster join when an experiment starts",
        ),
        ("tune.ExperimentAnalysis", "reads what holdfast has written, not experiments of Ray"),
        (
            "tune.Tuner",
            "fit() under the name of an unfinished experiment refuses, and prints the command "
            "that "
            "resumes it; Ctrl-C raises KeyboardInterrupt",
        ),
        (
            "tune.run",
            "the name of an unfinished experiment is refused without resume=; a list of "
            "experiments is for run_experiments; with restore= iterations count from 1; Ctrl-C "
            "raises "
            "KeyboardInterrupt",
        ),
        (
            "tune.run_experiments",
            "runs one experiment after the other, each in a folder of its own",
        ),
        ("tune.ResumeConfig", 'finished="resume" leaves a trial without a checkpoint finished'),
        ("tune.TuneConfig", "time_budget_s counts over all restores"),
        ("init", "parameters without a meaning here are accepted, and named in one line"),
    ),
    "failures": (
        (
            "tune.Callback tune.logger.LoggerCallback",
            "all hooks run in one separate thread; one that raises does not end the run",
        ),
        (
            "train.TrainingFailedError tune.TrialError exceptions.RayTaskError "
            "exceptions.RayActorError exceptions.UserCodeException",
            "an error of your code is a TrialError with its type name, message and traceback; the "
            "class itself is not raised again",
        ),
        (
            "train.WorkerGroupError",
            "worker_failures has the TrialError of the rank that is the cause; its text has the "
            "errors of the others",
        ),
        (
            "train.ControllerError train.NCCLHangError",
            "not raised: fit() raises the run's own error, or a WorkerGroupError",
        ),
        (
            "train.get_preemption_info train.PreemptionInfo train.PreemptionError",
            "a SIGTERM to one rank preempts all; the next report with a checkpoint ends the "
            "attempt",
        ),
        (
            "train.FailureConfig tune.FailureConfig",
            "preemptions have a budget of their own, as lost workers and out-of-memory kills may",
        ),
    ),
    "reports-and-checkpoints": (
        (
            "train.report tune.report air.session.report",
            "uploads are ASYNC by default; folders of checkpoints "
            "are numbered; arrays and tuples become lists",
        ),
        (
            "tune.ResultGrid",
            'get_best_result(scope="all") is the row with the best value, with its checkpoint',
        ),
        (
            "train.ValidationConfig train.ValidationTaskConfig",
            "the function runs in a rank, before report() returns: its metrics are in the row",
        ),
        (
            "train.get_all_reported_checkpoints train.CheckpointConsistencyMode "
            "train.ReportedCheckpointStatus",
            "the checkpoints that are kept; there is nothing to wait for",
        ),
        ("train.CheckpointUploadMode", "ASYNC is the default"),
        (
            "train.CheckpointConfig tune.CheckpointConfig",
            "a score that is infinite, NaN or missing is never the best",
        ),
    ),
    "files-and-storage": (
        (
            "train.RunConfig tune.RunConfig",
            "a local storage_path is used directly; stdout and stderr of a trial are always in "
            "files",
        ),
        (
            "train.SyncConfig tune.SyncConfig",
            "artifacts that you remove are removed in storage at the next sync",
        ),
    ),
    "search-algorithms": (
        (
            "tune.search.ConcurrencyLimiter",
            "batch=True passes on what it holds back if the search waits before the batch is full",
        ),
        (
            "tune.search.OptunaSearch",
            "quantized and logarithmic at once is refused, as are lists of tuples",
        ),
        (_SEARCHES, "after a restore it is created again, and the history is replayed to it"),
        (
            "tune.search.Searcher",
            "after a restore it is asked again, or gets the answers in recall(); save() and "
            "restore() "
            "are only for scripts that call them",
        ),
        (
            "tune.search.BasicVariantGenerator",
            "its state is in the run's journal; it has no save_to_dir() and restore_from_dir()",
        ),
    ),
    "schedulers": (
        (
            "tune.schedulers.HyperBandScheduler tune.schedulers.HyperBandForBOHB",
            "brackets and survivors are those of the papers",
        ),
        (
            "tune.schedulers.MedianStoppingRule",
            "each report counts once; trials pause for others only if min_time_slice is above 0",
        ),
        (
            "tune.schedulers.ResourceChangingScheduler tune.schedulers.DistributeResources "
            "tune.schedulers.DistributeResourcesToTopJob",
            "resources change only at a report with a checkpoint; the function gets plain facts",
        ),
        (
            "tune.schedulers.TrialScheduler tune.schedulers.FIFOScheduler",
            "the methods of a subclass get a small view of each trial",
        ),
    ),
    "population-based-training": (
        (
            "tune.schedulers.PopulationBasedTraining "
            "tune.schedulers.PopulationBasedTrainingReplay",
            "a multiplied value stays in its domain; whole numbers change by at least 1",
        ),
        ("tune.schedulers.PB2", "plain Python, with the likeliest of twelve kernels"),
    ),
    "stoppers": (
        (
            "tune.Stopper tune.stopper.Stopper tune.stopper.CombinedStopper "
            "tune.stopper.FunctionStopper tune.stopper.TimeoutStopper",
            "its state is rebuilt from the reports after a restore; TimeoutStopper counts over "
            "all "
            "restores",
        ),
        (
            "tune.stopper.ExperimentPlateauStopper tune.stopper.TrialPlateauStopper",
            "a metric that no report has is named in a warning at the first report",
        ),
    ),
    "training-on-several-workers": (
        ("train.xgboost.XGBoostTrainer", "num_workers that do not fit are an error"),
        (
            _TRAINERS,
            "num_workers that do not fit are an error within a second; the coordinator needs no "
            "CPU",
        ),
        (
            "train.ScalingConfig",
            "the coordinator needs no CPU; label_selector is ignored with a line; TPUs are "
            "refused",
        ),
        ("train.collective.broadcast_from_rank_zero", "takes up to 64 KiB"),
        (
            "train.UserCallback",
            "after_report gets the metrics of rank 0, and those of all with "
            "keep_all_metrics=True; "
            "run_context has no datasets",
        ),
        (
            "train.BackendConfig train.backend.BackendConfig",
            "joined(rank), a context manager, in place of a Backend",
        ),
    ),
    "datasets": (
        (
            "data.Dataset data.DataIterator train.get_dataset_shard air.session.get_dataset_shard",
            "an Arrow table or files; a shard resumes in the middle of an epoch",
        ),
        (
            "data.from_arrow data.from_huggingface data.from_items data.from_numpy "
            "data.from_pandas "
            "data.from_torch data.range data.range_tensor data.read_binary_files data.read_images "
            "data.read_parquet",
            "rows are read in the process that needs them; nothing is distributed",
        ),
        (
            "data.read_csv data.read_json data.read_text",
            "reads the files once to know their rows and types, and then block by block",
        ),
        (
            "data.ActorPoolStrategy data.DataContext data.ExecutionOptions "
            "data.ExecutionResources "
            "data.TaskPoolStrategy",
            "accepted, without effect: a dataset has no engine",
        ),
        (
            "data.Preprocessor data.preprocessor.Preprocessor",
            "serialize() is a text of JSON, not a pickle",
        ),
        ("train.DataConfig", "splits rows among the ranks; execution_options have no effect"),
    ),
    "shared-objects-and-runtime_env": (
        (
            "put get ObjectRef",
            "files that readers map, until the script ends; references are not counted, and an "
            "object whose owner has died is ObjectLost at once",
        ),
    ),
    "frameworks": (
        (
            "train.lightning.RayTrainReportCallback",
            "when_preempted=True saves in mid-epoch; all ranks write into one checkpoint",
        ),
        (
            "train.xgboost.RayTrainReportCallback train.lightgbm.RayTrainReportCallback "
            "tune.integration.xgboost.TuneReportCheckpointCallback "
            "tune.integration.lightgbm.TuneReportCheckpointCallback",
            "frequency counts the rounds of all attempts",
        ),
        (
            "train.tensorflow.keras.ReportCheckpointCallback",
            "resume(model) restores weights, optimizer and epoch",
        ),
    ),
    "trackers-and-output": (
        (
            "air.integrations.wandb.WandbLoggerCallback",
            "runs in a process of its own; the step is the number of the row",
        ),
        (
            "air.integrations.comet.CometLoggerCallback "
            "air.integrations.mlflow.MLflowLoggerCallback",
            "runs in a process of its own, which reads the journal",
        ),
    ),
}
# Parameters of Ray's that a name does not have: what to write instead.
PARAMETERS: Final[Mapping[str, Mapping[str, str]]] = {
    "train.Result": {"return_value": "train.report(), whose metrics Result.metrics has"},
}
