"""Reads what a trial has stored on a disk or in a bucket: its rows, its error and its
checkpoints."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from datetime import datetime
from typing import Any, get_args

from holdfast.dataclass import dataclass
from holdfast.experiment.folder.layout import PARAMS, RESULTS
from holdfast.experiment.folder.row_lines import DamagedRows, Row, RowLines
from holdfast.experiment.folder.trial_folder import TrialFolder
from holdfast.experiment.records.rows import result_metrics, result_row
from holdfast.experiment.user_objects.stored_objects import ResolveConfig, config_without_code
from holdfast.schema import check_table
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.syncer.stores.store import parse_table
from holdfast.trial.errors import Failure, FailureKind, TrialError
from holdfast.trial.trial import Trial

_log = logging.getLogger(__name__)
# <trainable>_<run>_<index>_<index>_<params>_<time>, as holdfast names a trial's directory.
DIRNAME = re.compile(
    r"_(?P<trial_id>[0-9a-f]{5}_\d{5,})_(?P<tag>\d+(?:_.*)?)_\d{4}(?:-\d\d){2}_\d\d(?:-\d\d){2}"
)
# The first line that `holdfast.experiment.records.rows.error_entry` writes for each failure.
_FAILED = re.compile(
    r"^Attempt \d+ failed at (?P<at>[^(\n]+) \((?P<kind>\w+)"
    r"(?:, process (?P<pid>\d+) on (?:node (?P<node>\S+), host )?(?P<host>.*))?\)$",
    re.M,
)
_TRACEBACK = "Traceback (most recent call last):\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCheckpoint:
    """A checkpoint that a trial keeps. `persisted` is False if only this machine has it.

    `place` counts from the worst one by the CheckpointConfig's score; without a score it is 0.
    """

    dirname: str
    iteration: int | None = None
    persisted: bool = True
    place: int = 0


def rows_of(trial: Trial, folder: TrialFolder) -> RowLines:
    """The rows of all iterations from `result.json`; logs a warning if the journal has more.

    During a run the newest rows are written shortly after their reports. Raises DamagedRows,
    StorageError, OSError.
    """
    rows = folder.rows()
    last = rows.row(-1).get("training_iteration") if rows else 0
    is_behind = type(last) is int and last < trial.iteration
    if is_behind and (not trial.status.has_worker or folder.is_at_rest):
        _log.warning(
            "%s/%s has rows up to iteration %s, but the journal up to %s: restoring the "
            "experiment, or holdfast doctor repair, rewrites the file",
            folder.shown, RESULTS, last, trial.iteration,
        )  # fmt: skip
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTrial:
    """What a trial has stored: its folder, and its checkpoints, oldest first.

    `trial` is None if only the folder is known. `best` is the row of the result, None for the
    newest.
    """

    folder: TrialFolder
    known_checkpoints: tuple[StoredCheckpoint, ...]
    trial: Trial | None = None
    resolve_config: ResolveConfig = config_without_code
    best: Row | None = None

    def checkpoints(self) -> list[tuple[Checkpoint, StoredCheckpoint]]:
        """The checkpoints, without those that were not persisted and are not on this machine."""
        reachable = []
        for known in self.known_checkpoints:
            checkpoint = self.folder.checkpoint(known.dirname, persisted=known.persisted)
            if checkpoint is not None:
                reachable.append((checkpoint, known))
        return reachable

    def metrics(self) -> Row:
        if self.trial is None:
            return _folder_metrics(self.folder)
        if self.best is not None:
            config = self.resolve_config(self.trial.config)
            return {**result_metrics(self.trial, self.best), "config": config}
        return trial_metrics(self.trial, self.folder, self.resolve_config)

    def rows(self) -> list[Row]:
        known = self.folder.rows() if self.trial is None else rows_of(self.trial, self.folder)
        return known.rows()

    def for_pickle(self) -> StoredTrial:
        """A copy that can be pickled."""
        return replace(self, folder=self.folder.for_pickle())

    def after_unpickle(self) -> StoredTrial:
        """A copy for this machine after unpickling."""
        return replace(self, folder=self.folder.after_unpickle())

    def shown_metrics(self) -> Row:
        """The metrics for a repr; read from files only if the records lack them."""
        if self.trial is not None and self.best is None:
            return recorded_row(self.trial)
        return self.metrics()


def recorded_row(trial: Trial) -> Row:
    """The newest row in the experiment's records; reads no file."""
    if trial.row is None:
        return {"trial_id": trial.trial_id, "done": False}
    return result_row(trial, with_config=False)


def has_reported_since_start(trial: Trial) -> bool:
    """Whether the row is of the trial's newest attempt, so that it will not be rolled back."""
    return trial.row is not None and trial.iteration > trial.resumed_from


def trial_metrics(trial: Trial, folder: TrialFolder, resolve_config: ResolveConfig) -> Row:
    """The newest row of a trial: from the records, or from `result.json` if a later attempt may
    roll the recorded one back."""
    newest = None if has_reported_since_start(trial) else folder.last_row()
    row = recorded_row(trial) if newest is None else newest
    return {**result_metrics(trial, row), "config": resolve_config(trial.config)}


def _params_of(folder: TrialFolder) -> dict[str, Any]:
    """The config in `params.json`. Raises DamagedRows."""
    try:
        params: dict[str, Any] = check_table(parse_table(folder.read(PARAMS) or b"{}"), "it")
    except ValueError as error:
        raise DamagedRows(
            f"{folder.shown}/{PARAMS} is not a table of parameters ({error})"
        ) from None
    return params


def _folder_metrics(folder: TrialFolder) -> Row:
    """The last row, with the config from `params.json` if it lacks that."""
    metrics = folder.last_row() or {}
    if "config" not in metrics:
        metrics["config"] = _params_of(folder)
    known = DIRNAME.search(folder.name)
    if known:
        metrics.setdefault("trial_id", known["trial_id"])
        metrics.setdefault("experiment_tag", known["tag"])
    return metrics


def read_error(text: str, row: Row | None, folder: TrialFolder) -> TrialError | None:
    """The last failure in `error.txt`; None if the trial continued after it and reported.

    Each attempt has its own process. So the last row is of a later attempt if it is not older than
    the failure and `error.txt` does not name the process that reported it.
    """
    entries = list(_FAILED.finditer(text))
    last = entries[-1] if entries else None
    if last is not None and row is not None:
        failed_at = datetime.strptime(last["at"], "%Y-%m-%d %H:%M:%S %z").timestamp()
        failed = {entry["pid"] for entry in entries}
        if str(row.get("pid")) not in failed and row.get("timestamp", 0) >= failed_at:
            return None
    body = text[last.end() :].strip() if last is not None else text.strip()
    headline, mark, frames = body.partition(_TRACEBACK)
    type_name, _, message = headline.strip().partition(": ")
    failure = Failure(
        kind=_kind_named(last["kind"]) if last else "user",
        type_name=type_name,
        message=message,
        traceback=mark + frames,
        pid=int(last["pid"]) if last and last["pid"] else None,
        hostname=(last["host"] or "") if last else "",
        node=(last["node"] or "") if last else "",
    )
    known = DIRNAME.search(folder.name)
    return TrialError(known["trial_id"] if known else folder.name, failure, folder.shown)


def _kind_named(text: str) -> FailureKind:
    """The kind of failure; "user" for an unknown one, because the user may have edited the
    file."""
    kinds: tuple[FailureKind, ...] = get_args(FailureKind)
    return next((kind for kind in kinds if kind == text), "user")
