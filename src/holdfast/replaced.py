"""Names of Ray, Ray Tune and Optuna that holdfast does not have, and what to write instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_FIT: Final = (
    "tune.Tuner(trainable, param_space=..., tune_config=tune.TuneConfig(...), "
    "run_config=tune.RunConfig(...)).fit()"
)
_ENV: Final = (
    "tune.with_parameters(trainable, make_env=function): there is no registry of environments, "
    "which only RLlib reads"
)
_TASKS: Final = (
    "tune.Tuner(function) for many trials, or holdfast.train.torch.TorchTrainer for one training "
    "on several workers; there are no tasks or actors"
)
_REPORT: Final = "tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(folder))"
_IN_SPACE: Final = "Tuner(train, param_space={{'name': {}}})"

_SESSION: Final = (
    f"{_REPORT}, tune.get_checkpoint() and tune.get_context(), from `from holdfast import tune`"
)
_SAMPLES: Final = (
    "tune.uniform(...), tune.choice([...]) and the like, or tune.sample_from(function)"
)
_BEST: Final = "results.best"
_READERS: Final = (
    "from_blocks from_daft from_dask from_mars from_modin from_spark from_tf read_audio read_avro "
    "read_bigquery read_clickhouse read_databricks_tables read_datasource read_delta "
    "read_delta_sharing_tables read_hudi read_iceberg read_kafka read_lance read_mongo read_numpy "
    "read_orc read_snowflake read_sql read_tfrecords read_unity_catalog read_videos "
    "read_webdataset read_zarr"
)
_READ: Final = (
    "data.read_parquet, data.read_csv, data.read_json, data.read_text, data.read_images or "
    "data.read_binary_files, or data.from_arrow of what the library reads"
)
_PREPROCESSORS: Final = (
    "CountVectorizer CustomKBinsDiscretizer FeatureHasher HashingVectorizer MultiHotEncoder "
    "PowerTransformer Tokenizer TorchVisionPreprocessor UniformKBinsDiscretizer"
)
_MAPPED: Final = (
    "data.Dataset.map_batches(function) with scikit-learn's own; in a Chain, "
    "data.preprocessors.BatchMapper(function)"
)

# By class: attributes that Ray's class of this name has, or a Study of Optuna.
REPLACED_ATTRIBUTES: Final[Mapping[str, Mapping[str, str]]] = {
    "BasicVariantGenerator": {
        **dict.fromkeys(
            (
                *("get_state", "set_state", "save", "restore", "save_to_dir"),
                *("restore_from_dir", "has_checkpoint"),
            ),
            "tune.Tuner.restore(path, trainable).fit(): the run's journal has its state",
        ),
        **dict.fromkeys(
            ("add_configurations", "next_trial", "is_finished", "total_samples"),
            "tune.Tuner(trainable, param_space=...).fit(), which makes the trials",
        ),
    },
    "ExperimentAnalysis": {
        "best_logdir": "analysis.best_trial.path",
        "fetch_trial_dataframes": "analysis.trial_dataframes",
        "get_best_logdir": "analysis.get_best_trial(metric, mode).path",
        "get_trial_checkpoints_paths": "tune.load(analysis.experiment_path), whose results have "
        "best_checkpoints",
    },
    "Dataset": {
        **{
            f"iter_{kind}_batches": "to_tf(feature_columns, label_columns), or iter_batches()"
            for kind in ("tf", "jax")
        },
        **{
            f"write_{kind}": "write_parquet(path), write_csv(path) or write_json(path)"
            for kind in (
                *("bigquery", "clickhouse", "datasink", "delta", "iceberg", "images", "kafka"),
                *("lance", "mongo", "numpy", "orc", "snowflake", "sql", "tfrecords", "webdataset"),
            )
        },
        **{
            f"to_{kind}": "to_pandas() or to_arrow(), and make it of that"
            for kind in (
                *("arrow_refs", "daft", "dask", "mars", "modin", "numpy_refs", "pandas_refs"),
                *("random_access_dataset", "spark"),
            )
        },
        "fully_executed": "materialize()",
        "mix": "union(other).random_shuffle()",
        "pipeline": "iter_batches(): files are read on demand",
        "size_bytes": "to_arrow().nbytes",
        "stats": "count(), schema() and num_blocks(): rows are read on demand, by your loop",
        "streaming_train_test_split": "train_test_split(test_size, shuffle=True)",
        "summary": "to_pandas().describe(), or aggregate(Mean(column), Std(column), ...)",
        "to_torch": "iter_torch_batches()",
        "window": "iter_batches(): files are read on demand",
        "with_columns": "with_column(name, expression) for each",
    },
    "RunPerTrial": {
        "mlflow_util": "mlflow.tracking.MlflowClient(), with self._trial_runs[trial] as the id of "
        "the trial's run",
        **dict.fromkeys(
            ("_trial_logging_actors", "_trial_processes", "_trial_queues"),
            "self._trial_runs[trial], which is W&B's run",
        ),
    },
    "Result": {"log_dir": "result.path"},
    "ResultGrid": {
        "_experiment_analysis": "results.analysis",
        "best_checkpoint": f"{_BEST}.checkpoint",
        "best_config": f"{_BEST}.config",
        "best_params": f"{_BEST}.config",
        "best_result": _BEST,
        "best_trial": _BEST,
        "best_value": f"{_BEST}.metrics[metric]",
        "dataframe": "results.get_dataframe()",
        "get_trials": "results[i], or `for result in results`",
        "results_df": "results.get_dataframe()",
        "trials": "results[i], or `for result in results`",
        "trials_dataframe": "results.get_dataframe()",
    },
    "Tuner": {
        "best_params": f"results = tuner.fit(), then {_BEST}.config",
        "best_trial": f"results = tuner.fit(), then {_BEST}",
        "best_value": f"results = tuner.fit(), then {_BEST}.metrics[metric]",
        "optimize": "tune.Tuner(function, param_space=..., "
        "tune_config=tune.TuneConfig(num_samples=...)).fit()",
        "run": "tuner.fit()",
        "trials": "tuner.fit(), whose ResultGrid has a result for each trial",
    },
}


def explained_attribute(owner: object, name: str) -> Any:
    """For `__getattr__` of a public class: the AttributeError of an attribute that other libraries
    have says what to write."""
    try:
        return object.__getattribute__(owner, name)  # an error inside a property stays as it is
    except AttributeError as error:
        known = (REPLACED_ATTRIBUTES.get(kind.__name__, {}) for kind in type(owner).__mro__)
        use = next((words[name] for words in known if name in words), None)
        if use is None or error.name != name:
            raise
        raise AttributeError(f"{error}. Use {use}", name=name, obj=owner) from None


REPLACED: Final[Mapping[str, Mapping[str, str]]] = {
    "holdfast": {
        "actor": _TASKS,
        "get_actor": _TASKS,
        "kill": _TASKS,
        "remote": _TASKS,
        "wait": _TASKS,
    },
    "holdfast.data": dict.fromkeys(_READERS.split(), _READ),
    "holdfast.data.preprocessors": dict.fromkeys(_PREPROCESSORS.split(), _MAPPED),
    "holdfast.tune.search": {
        "SearchAlgorithm": "a subclass of tune.search.Searcher, which has suggest() and "
        "on_trial_complete(); or tune.search.BasicVariantGenerator for random and grid search",
        "SearchGenerator": "the searcher itself: TuneConfig(search_alg=searcher)",
        "sample": _SAMPLES,
    },
    "holdfast.tune": {
        "checkpoint_dir": f"folder = tune.staging_directory(), write there, then {_REPORT}",
        "create_study": _FIT,
        "get_trial_dir": "tune.get_context().get_trial_dir()",
        "get_trial_id": "tune.get_context().get_trial_id()",
        "get_trial_name": "tune.get_context().get_trial_name()",
        "get_trial_resources": "tune.get_context().get_trial_resources()",
        "is_session_enabled": "tune.get_context(), which raises a TuneError outside a trial",
        "load_study": "tune.load(path), or tune.Tuner.restore(path, trainable).fit() to continue",
        "register_env": _ENV,
        "save_checkpoint": _REPORT,
        "session": _SESSION,
        "suggest_categorical": _IN_SPACE.format("tune.choice([...])"),
        "suggest_float": _IN_SPACE.format("tune.uniform(low, high)")
        + ", or tune.loguniform(low, high) for log=True",
        "suggest_int": _IN_SPACE.format("tune.randint(low, high + 1)"),
    },
    "holdfast.train": {
        "Trainer": "holdfast.train.torch.TorchTrainer, or holdfast.train.DataParallelTrainer",
        **{
            f"get_{name}": f"train.get_context().get_{name}()"
            for name in ("experiment_name", "trial_dir", "trial_id", "trial_name", "world_size")
        },
        "get_world_rank": "train.get_context().get_world_rank()",
        "load_checkpoint": "train.get_checkpoint()",
        "local_rank": "train.get_context().get_local_rank()",
        "save_checkpoint": _REPORT.replace("tune.", "train."),
        "session": "train.report(), train.get_checkpoint() and train.get_context()",
        "world_rank": "train.get_context().get_world_rank()",
        "world_size": "train.get_context().get_world_size()",
    },
}
