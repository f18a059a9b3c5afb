"""MLflow: `MLflowLoggerCallback` from outside the trials, `setup_mlflow` inside them."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from holdfast.air.integrations.run_per_trial import (
    RunPerTrial,
    StandIn,
    flatten_dict,
    metrics_of,
    numbers_in,
)
from holdfast.described import Construction
from holdfast.experiment.callbacks.callback import LoggerCallback as LoggerCallback
from holdfast.experiment.worker.context import get_context
from holdfast.experiment.worker.session import running
from holdfast.lazy import Framework
from holdfast.trial.errors import InvalidConfig

__all__ = ["LoggerCallback", "MLflowLoggerCallback", "setup_mlflow"]

MLFLOW = Framework(title="MLflow", module="mlflow", minimum="2.16")

RUN_TAG: Final = "holdfast.run"
TRIAL_TAG: Final = "trial_id"
STOP_TAG: Final = "stop_reason"
_EXPERIMENT: Final = "MLFLOW_EXPERIMENT_NAME"
_URI: Final = "MLFLOW_TRACKING_URI"
# The server's own limits for one request.
_MOST_METRICS: Final = 1000
_MOST_PARAMS: Final = 100
_LONGEST_NAME: Final = 250
_ILLEGAL: Final = re.compile(r"[^\w\-. :/]")
# Error codes with which MLflow refuses a request, and would refuse it again.
_REFUSALS: Final = frozenset({"INVALID_PARAMETER_VALUE", "BAD_REQUEST"})
# MLflow's own retries take minutes; holdfast repeats each call anyway.
_QUICK: Final = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "30"}


class MLflowLoggerCallback(RunPerTrial):
    """Sends every row of every trial to an MLflow server or store, from a separate process.

    A trial is one run over all attempts and restores, found by its tag `holdfast.run`. The step is
    `training_iteration`. If a trial repeats iterations after a failure, both values are at that
    step, with the metric `attempt`. Values that are not numbers are left out.

    `tracking_uri` (else MLFLOW_TRACKING_URI), `registry_uri`, `experiment_name` (else
    MLFLOW_EXPERIMENT_NAME, "Default"), created if it is missing. `tags` for every run,
    in addition to those of the RunConfig; the tag `stop_reason` says why the trial has ended.
    `tracking_token` is sent to the process, and stored in no file: a restore takes
    MLFLOW_TRACKING_TOKEN. The same for a password in `tracking_uri`: where MLFLOW_TRACKING_URI is
    set, a restore uses that. `save_artifact` sends the
    trial's folder when it has ended. `log_params_on_trial_end`: the config then, not at the start.
    """

    def __init__(
        self,
        tracking_uri: str | None = None,
        *,
        registry_uri: str | None = None,
        experiment_name: str | None = None,
        tags: dict[str, Any] | None = None,
        tracking_token: str | None = None,
        save_artifact: bool = False,
        log_params_on_trial_end: bool = False,
    ) -> None:
        self.tracking_uri = tracking_uri
        self.registry_uri = registry_uri
        self.experiment_name = experiment_name
        self.tags = dict(tags or {})
        self.tracking_token = tracking_token
        self.save_artifact = save_artifact
        self.log_params_on_trial_end = log_params_on_trial_end
        self._client: Any = None
        self._experiment_id = ""
        self._runs = {}
        self._waiting: dict[str, list[Any]] = {}
        self._ended: dict[str, tuple[Any, bool]] = {}

    def secrets(self) -> dict[str, Any]:
        return {
            "tracking_token": self.tracking_token,
            "tracking_uri": self.tracking_uri,
            "registry_uri": self.registry_uri,
        }

    def without_secrets(self, construction: Construction) -> Construction:
        return construction.without("tracking_token").with_arguments(**self._public_uris())

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "tracking_token": None, **self._public_uris()}

    def _public_uris(self) -> dict[str, str | None]:
        return {
            "tracking_uri": without_password(self.tracking_uri),
            "registry_uri": without_password(self.registry_uri),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Called by a restore, which may lack a password or use another server."""
        self.__dict__.update(state)
        self.tracking_uri = os.environ.get(_URI) or self.tracking_uri

    def target(self) -> str:
        return without_password(self.tracking_uri or os.environ.get(_URI)) or ""

    def check(self, environ: Mapping[str, str]) -> None:
        """Raises ImportError without MLflow, InvalidConfig for a store that it cannot open."""
        MLFLOW.check()

    def setup(self, *args: Any, **info: Any) -> None:
        """Called in the tracker process. Raises MLflow's error for a store that it cannot open."""
        for name, value in _QUICK.items():
            os.environ.setdefault(name, value)
        if self.tracking_token:
            os.environ["MLFLOW_TRACKING_TOKEN"] = self.tracking_token
        from mlflow import MlflowClient

        self._client = MlflowClient(self.tracking_uri, self.registry_uri)

    def is_refusal(self, error: Exception) -> bool:
        from mlflow.exceptions import MlflowException

        if isinstance(error, MlflowException):
            return error.error_code in _REFUSALS
        return super().is_refusal(error)

    def log_trial_start(self, trial: Any) -> None:
        run_id = self._run_of(trial)
        self._client.update_run(run_id, "RUNNING")
        if not self.log_params_on_trial_end:
            log_params(self._client, run_id, trial.config)

    def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
        from mlflow.entities import Metric

        at_ms = int(1000 * float(result["timestamp"]))
        metrics = [
            Metric(legal_name(name), value, at_ms, iteration)
            for name, value in numbers_in(metrics_of(result)).items()
        ]
        self._waiting.setdefault(self._run_of(trial), []).extend(metrics)

    def log_trial_end(self, trial: Any, failed: bool = False) -> None:
        self._ended[self._run_of(trial)] = trial, failed

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        """End the runs of trials that can be resumed."""
        for run_id in self._runs.values():
            self._client.set_terminated(run_id, "KILLED")
        self._runs.clear()

    def flush(self) -> None:
        """Send what waits: rows, then ends. After an error nothing waits, because all of it is
        passed again."""
        waiting, self._waiting = self._waiting, {}
        ended, self._ended = self._ended, {}
        for run_id, metrics in waiting.items():
            for at in range(0, len(metrics), _MOST_METRICS):
                self._client.log_batch(run_id, metrics=metrics[at : at + _MOST_METRICS])
        for run_id, (trial, failed) in ended.items():
            self._end(run_id, trial, failed=failed)

    def _end(self, run_id: str, trial: Any, *, failed: bool) -> None:
        if self.log_params_on_trial_end:
            log_params(self._client, run_id, trial.config)
        if self.save_artifact and os.path.isdir(trial.local_path):
            self._client.log_artifacts(run_id, trial.local_path)
        self._client.set_tag(run_id, STOP_TAG, trial.stop_reason)
        self._client.set_terminated(run_id, "FAILED" if failed else "FINISHED")
        self._runs.pop(trial.trial_id, None)

    def _begin(self, trial: Any) -> str:
        if not self._experiment_id:
            name = self.experiment_name or os.environ.get(_EXPERIMENT) or "Default"
            self._experiment_id = experiment_id_of(self._client, name)
        of_run = {legal_name(name): value for name, value in trial.run_tags.items()}
        tags = {TRIAL_TAG: trial.trial_id, "trial_name": str(trial), "experiment": trial.group}
        return tagged_run(
            self._client,
            self._experiment_id,
            RUN_TAG,
            trial.run_id,
            name=str(trial),
            tags={**of_run, **self.tags, **tags},
        )


def log_params(client: Any, run_id: str, config: Mapping[str, Any]) -> None:
    """A config as parameters, nested names with slashes."""
    from mlflow.entities import Param

    flat = flatten_dict(config)
    params = [Param(legal_name(name), str(value)) for name, value in flat.items()]
    for at in range(0, len(params), _MOST_PARAMS):
        client.log_batch(run_id, params=params[at : at + _MOST_PARAMS])


def legal_name(name: str) -> str:
    """The name in the form that MLflow accepts.

    An invalid name gets its checksum as well, so that two different names stay different.
    """
    legal = _ILLEGAL.sub("_", name)
    # MLflow makes a path of it, which must be in its shortest form.
    legal = "/".join(part for part in legal.split("/") if part not in ("", ".", "..")) or "_"
    if legal == name and len(name) <= _LONGEST_NAME:
        return name
    return f"{legal[: _LONGEST_NAME - 9]}-{zlib.crc32(name.encode()):08x}"


def experiment_id_of(client: Any, name: str) -> str:
    """The id of the experiment with this name, which is created if it is missing."""
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(name)
    if found is None:
        try:
            return client.create_experiment(name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
            found = client.get_experiment_by_name(name)
    return found.experiment_id


def tagged_run(
    client: Any, experiment_id: str, tag: str, value: str, *, name: str, tags: Mapping[str, Any]
) -> str:
    """The id of the first run whose `tag` has this value; of a new run with it and `tags` if there
    is none."""
    found = client.search_runs(
        [experiment_id],
        filter_string=f"tags.`{tag}` = '{value}'",
        max_results=1,
        order_by=["attributes.start_time ASC"],
    )
    if found:
        return found[0].info.run_id
    run = client.create_run(experiment_id, tags={**tags, tag: value}, run_name=name)
    return run.info.run_id


def without_password(uri: str | None) -> str | None:
    """The URI for a file: without a password."""
    if uri is None or "@" not in uri:
        return uri
    parts = urlsplit(uri)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def setup_mlflow(
    config: dict[str, Any] | None = None,
    tracking_uri: str | None = None,
    registry_uri: str | None = None,
    experiment_id: str | None = None,
    experiment_name: str | None = None,
    tracking_token: str | None = None,
    artifact_location: str | None = None,
    run_name: str | None = None,
    create_experiment_if_not_exists: bool = False,
    tags: dict[str, Any] | None = None,
    rank_zero_only: bool = True,
) -> Any:
    """Start or resume the trial's run in this worker; returns the module `mlflow` with the run
    active.

    Another attempt of the trial finds the run by its tag `trial_id`. In ranks other than the
    first, unless not `rank_zero_only`, it returns a stand-in that accepts every call and does
    nothing.

    `config` is logged as the parameters of the run. `tracking_uri`, `registry_uri` and
    `tracking_token` say where the server is (else what MLflow has been set to). `experiment_id`,
    or `experiment_name` (else MLFLOW_EXPERIMENT_NAME, "Default"), is the experiment; with
    `create_experiment_if_not_exists` it is made if missing, with its files at `artifact_location`.
    A new run has the name `run_name` and the `tags`.

    Raises ImportError without MLflow, InvalidConfig for an experiment that does not exist.
    """
    MLFLOW.check()
    session = running()
    context = get_context() if session is not None else None
    if context is not None and rank_zero_only and context.get_world_rank() > 0:
        return StandIn()
    import mlflow

    if tracking_token:
        os.environ["MLFLOW_TRACKING_TOKEN"] = tracking_token
    if tracking_uri:
        mlflow.set_tracking_uri(tracking_uri)
    if registry_uri:
        mlflow.set_registry_uri(registry_uri)
    client = mlflow.MlflowClient()
    if experiment_id is None:
        name = experiment_name or os.environ.get(_EXPERIMENT) or "Default"
        experiment_id = _experiment(
            client, name, artifact_location, makes=create_experiment_if_not_exists
        )
    elif client.get_experiment(experiment_id) is None:
        raise InvalidConfig(f"MLflow has no experiment {experiment_id!r}")
    mlflow.set_experiment(experiment_id=experiment_id)
    run_id = _begin_in_trial(client, experiment_id, run_name, tags or {}, context)
    mlflow.start_run(run_id=run_id)
    log_params(client, run_id, config or {})
    return mlflow


def _experiment(client: Any, name: str, artifacts: str | None, *, makes: bool) -> str:
    found = client.get_experiment_by_name(name)
    if found is None and not makes:
        raise InvalidConfig(
            f"MLflow has no experiment {name!r}: create it, or pass "
            f"setup_mlflow(create_experiment_if_not_exists=True)"
        )
    if found is None and artifacts:
        return client.create_experiment(name, artifact_location=artifacts)
    return experiment_id_of(client, name)


def _begin_in_trial(
    client: Any, experiment_id: str, name: str | None, tags: Mapping[str, Any], context: Any
) -> str:
    if context is None:
        return client.create_run(experiment_id, tags=dict(tags), run_name=name).info.run_id
    rank, trial_name = context.get_world_rank(), context.get_trial_name()
    key = context.get_trial_id() + (f"-{rank}" if rank else "")
    tags = {**tags, "trial_name": trial_name}
    return tagged_run(client, experiment_id, TRIAL_TAG, key, name=name or trial_name, tags=tags)
