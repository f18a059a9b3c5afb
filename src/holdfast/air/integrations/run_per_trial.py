"""The base of trackers that have one run of their service for each trial."""

from __future__ import annotations

import configparser
import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from holdfast.compat.advice import explained_attribute
from holdfast.experiment.records.rows import columns_of
from holdfast.experiment.trackers.tracker import Tracker

# Values in each row that are not measurements: constants, or facts about files.
FACTS: Final = ("trial_id", "experiment_tag", "hostname", "node_ip", "node_name", "pid")
_LEFT_OUT: Final = frozenset(
    {*FACTS, "config", "date", "done", "should_checkpoint", "checkpoint_dir_name"}
)


def flatten_dict(row: Mapping[str, Any]) -> dict[str, Any]:
    """`{"a": {"b": 1}}` as `{"a/b": 1}`; empty dicts are left out."""
    columns = columns_of(row)
    return {name: value for name, value in columns.items() if not isinstance(value, Mapping)}


def metrics_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics of a row, flat, without `config` and facts about the process.

    A user's metric with the name of an automatic one is a metric.
    """
    return flatten_dict({key: value for key, value in row.items() if key not in _LEFT_OUT})


def facts_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """The facts about the process of the attempt."""
    return {key: row[key] for key in FACTS if key in row}


def as_number(value: Any) -> float | None:
    """The value as a float, also NaN and infinity; None if it is not a number, or too large for a
    float."""
    if not isinstance(value, (bool, int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def numbers_in(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The metrics that are numbers."""
    found = ((key, as_number(value)) for key, value in metrics.items())
    return {key: number for key, number in found if number is not None}


def read_key(path: str | os.PathLike[str]) -> str:
    """The key in a file. Raises ValueError, naming the file, if there is none."""
    try:
        key = Path(path).expanduser().read_text().strip()
    except OSError as error:
        raise ValueError(f"api_key_file={os.fspath(path)!r} cannot be read: {error}") from error
    if not key:
        raise ValueError(f"api_key_file={os.fspath(path)!r} is empty")
    return key


def setting_in(files: Sequence[Path], section: str, name: str) -> str:
    """A setting in INI files, of which the later ones take precedence; "" if none has it."""
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read(files)
    except configparser.Error:
        return ""
    return parser.get(section, name, fallback="")


class StandIn:
    """Replaces a tracker's run or module: accepts every call and does nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self

    def __enter__(self) -> StandIn:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __bool__(self) -> bool:
        return False


class RunPerTrial(Tracker):
    """Begins a trial's run at its first use. A subclass creates `_runs`, by trial id."""

    _runs: dict[str, Any]

    @abstractmethod
    def _begin(self, trial: Any) -> Any:
        """Begin or continue the trial's run."""

    def log_trial_start(self, trial: Any) -> None:
        self._run_of(trial)

    def __getattr__(self, name: str) -> Any:
        return explained_attribute(self, name)

    def __getitem__(self, trial: Any) -> Any:
        """The trial's run of the service, which begins at its first use."""
        return self._run_of(trial)

    @property
    def _trial_experiments(self) -> Self:
        """As Ray's classes keep them: `self._trial_experiments[trial]` is the trial's run."""
        return self

    _trial_runs = _trial_experiments

    def _run_of(self, trial: Any) -> Any:
        run = self._runs.get(trial.trial_id)
        if run is None:
            run = self._runs[trial.trial_id] = self._begin(trial)
        return run


def tag_texts(tags: Mapping[str, str], longest: int) -> list[str]:
    """`["data=v3"]`: tags for a service whose tags have no values."""
    return [f"{name}={value}"[:longest] for name, value in tags.items()]


def newest_checkpoint(trial: Any) -> str | None:
    """The directory of the trial's newest checkpoint. None if there is none, or none any more: the
    tracker process runs behind, and the checkpoint may be superseded and removed by now."""
    folder = None if trial.checkpoint is None else trial.checkpoint.path
    return folder if folder is not None and os.path.isdir(folder) else None
