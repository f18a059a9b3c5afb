"""Comet: `CometLoggerCallback` from outside the trials."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from holdfast.air.integrations.run_per_trial import (
    RunPerTrial,
    as_number,
    facts_of,
    flatten_dict,
    metrics_of,
    newest_checkpoint,
    setting_in,
    tag_texts,
)
from holdfast.experiment.callbacks.callback import LoggerCallback as LoggerCallback
from holdfast.lazy import Framework
from holdfast.trial.errors import InvalidConfig

__all__ = ["CometLoggerCallback", "LoggerCallback"]

COMET = Framework(title="Comet", module="comet_ml", extra="comet", minimum="3.47")

# Arguments of `comet_ml.start` itself; all others are those of its ExperimentConfig.
_OF_START: Final = ("api_key", "workspace", "project", "project_name", "source")
_LONGEST_TAG: Final = 100
# Facts about the tracker process say nothing about a training.
_QUIET: Final[Mapping[str, Any]] = {
    "log_code": False,
    "log_graph": False,
    "log_git_metadata": False,
    "log_git_patch": False,
    "log_env_details": False,
    "auto_output_logging": False,
    "auto_param_logging": False,
    "auto_metric_logging": False,
    "auto_log_co2": False,
    "parse_args": False,
    "display_summary_level": 0,
}


class CometLoggerCallback(RunPerTrial):
    """Sends every row of every trial to Comet, or to archives on disk, from a separate process.

    A trial is one Comet experiment over all attempts and restores. Its key is made from the
    trial's id and the experiment's. The step is `training_iteration`. If a trial repeats
    iterations after a failure, both values are sent, with `attempt`. Text is sent as "other";
    values that are neither numbers nor text are left out. The RunConfig's tags are sent as
    `data=v3`; the "other" `stop_reason` says why a trial has ended.

    `online=False` writes archives for `comet upload`: into `offline_directory`, else the trial's
    folder, one for each start of the experiment. `save_checkpoints` sends those that still exist.
    `experiment_kwargs` are those of Comet's Experiment (`api_key`, `workspace`, `project_name`,
    ...); `api_key` is stored in no file: a restore takes COMET_API_KEY, or the key of `comet
    login`.
    """

    def __init__(
        self,
        online: bool = True,
        tags: Sequence[str] | None = None,
        save_checkpoints: bool = False,
        **experiment_kwargs: Any,
    ) -> None:
        self.online = online
        self.tags = list(tags or ())
        self.save_checkpoints = save_checkpoints
        self.api_key = experiment_kwargs.pop("api_key", None)
        self.experiment_kwargs = experiment_kwargs
        self._runs = {}
        self._sent: dict[str, int] = {}

    def secrets(self) -> dict[str, Any]:
        return {"api_key": self.api_key}

    def check(self, environ: Mapping[str, str]) -> None:
        """Raises ImportError without Comet, InvalidConfig if it is online without a key."""
        COMET.check()
        if self.online and not self.api_key and not _has_key(environ):
            raise InvalidConfig(
                "CometLoggerCallback has no key: run `comet login`, or set COMET_API_KEY. "
                "(api_key= is stored in no file, so a restore needs one of these.) To write to "
                "disk only: online=False"
            )

    def setup(self, *args: Any, **info: Any) -> None:
        """Called in the tracker process."""
        os.environ.setdefault("COMET_LOGGING_CONSOLE", "ERROR")

    def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
        experiment = self._run_of(trial)
        if trial.told.row <= self._sent.get(trial.trial_id, 0):
            return  # Comet's own queue still has it
        self._sent[trial.trial_id] = trial.told.row
        numbers: dict[str, float] = {}
        for name, value in metrics_of(result).items():
            number = as_number(value)
            if number is not None:
                numbers[name] = number
            elif isinstance(value, str):
                experiment.log_other(name, value)
        experiment.log_metrics(numbers, step=iteration)
        experiment.log_others({**facts_of(result), "attempt": trial.told.attempt})

    def log_trial_save(self, trial: Any) -> None:
        if self.save_checkpoints and (folder := newest_checkpoint(trial)):
            self._run_of(trial).log_model(os.path.basename(folder), folder)

    def log_trial_end(self, trial: Any, failed: bool = False) -> None:
        self._run_of(trial)
        self._runs[trial.trial_id].log_other("stop_reason", trial.stop_reason)
        self._close(trial.trial_id, "failed" if failed else "finished")

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        """End the experiments of trials that can be resumed."""
        for trial_id in list(self._runs):
            self._close(trial_id, "interrupted")

    def _close(self, trial_id: str, status: str) -> None:
        experiment = self._runs[trial_id]
        experiment.log_other("status", status)
        experiment.end()
        del self._runs[trial_id]
        self._sent.pop(trial_id, None)

    def flush(self) -> None:
        """Raises TimeoutError while Comet has not sent everything."""
        for experiment in self._runs.values() if self.online else ():
            if not experiment.flush():
                raise TimeoutError("Comet has not sent everything yet")

    def holds(self) -> frozenset[str]:
        """Trials whose archive is incomplete: it is written when its experiment ends."""
        return frozenset() if self.online else frozenset(self._runs)

    def _begin(self, trial: Any) -> Any:
        import comet_ml
        from comet_ml.config import set_global_experiment

        # Comet would use, or end, the experiment of another trial.
        set_global_experiment(None)
        given = {**self.experiment_kwargs, "api_key": self.api_key}
        to_start = {name: given.pop(name) for name in _OF_START if given.get(name) is not None}
        given.pop("api_key", None)
        trial.init_local_path()
        config = {**_QUIET, "offline_directory": trial.local_path, **given}
        experiment = comet_ml.start(
            **to_start,
            experiment_key=experiment_key(trial.run_id),
            mode="get_or_create",
            online=self.online,
            experiment_config=comet_ml.ExperimentConfig(**config),
        )
        experiment.set_name(str(trial))
        tags = [*self.tags, *tag_texts(trial.run_tags, _LONGEST_TAG)]
        if tags:  # Comet reports an error for an empty list
            experiment.add_tags(tags)
        experiment.log_parameters(flatten_dict(trial.config))
        experiment.log_others({"trial_id": trial.trial_id, "experiment": trial.group})
        return experiment


def experiment_key(run_id: str) -> str:
    """A key in the form that Comet requires: 32 to 50 letters and digits."""
    return hashlib.sha256(run_id.encode()).hexdigest()[:40]


def _has_key(environ: Mapping[str, str]) -> bool:
    if environ.get("COMET_API_KEY"):
        return True
    home = Path(environ.get("HOME", "~")).expanduser()
    named = environ.get("COMET_CONFIG")
    places = [Path(named)] if named else [home / ".comet.config", Path(".comet.config")]
    return bool(setting_in(places, "comet", "api_key"))
