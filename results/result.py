"""The result of one trial, read from memory, from a disk or from a bucket."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self, get_args

from holdfast.compat.advice import explained_attribute
from holdfast.dataclass import dataclass
from holdfast.experiment.folder.layout import ERROR, PARAMS, RESULTS, Layout
from holdfast.experiment.folder.trial_folder import (
    DamagedRows,
    Row,
    RowLines,
    TrialFolder,
    numeric,
)
from holdfast.experiment.records.rows import (
    AUTOMATIC,
    columns_of,
    result_metrics,
    result_row,
    tag_columns,
)
from holdfast.experiment.user_objects.stored_objects import ResolveConfig, config_without_code
from holdfast.results.ranking import (
    NoBestResult,
    check_mode,
    dataframe,
    index_of_best,
    reported_names,
)
from holdfast.results.short_errors import short_errors
from holdfast.scheduler.state import ranked
from holdfast.schema import check_table
from holdfast.syncer.checkpoint.checkpoint import Checkpoint
from holdfast.syncer.stores.location import Location
from holdfast.syncer.stores.store import parse_table
from holdfast.trial.config import CheckpointConfig
from holdfast.trial.errors import Failure, FailureKind, TrialError, TuneError
from holdfast.trial.resources import Usage, usage_of_all
from holdfast.trial.trial import Status, StopReason, Trial

if TYPE_CHECKING:
    import pandas
    import pyarrow.fs

    from holdfast.results.drawing import ResultPlots


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
    """The stored files of a trial: its folder, and its checkpoints, oldest first.

    `trial` is None if only the folder is known. `best` is the row of the result, None for the
    newest.
    """

    folder: TrialFolder
    known_checkpoints: tuple[StoredCheckpoint, ...]
    trial: Trial | None = None
    resolve_config: ResolveConfig = config_without_code
    best: Row | None = None


def recorded_row(trial: Trial) -> Row:
    """The newest row in the experiment's records; reads no file."""
    if trial.row is None:
        return {"trial_id": trial.trial_id, "done": False}
    return result_row(trial, with_config=False)


def has_reported_since_start(trial: Trial) -> bool:
    """True if the row is of the trial's newest attempt, so that it will not be rolled back."""
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


_SHOWN_METRICS = 8


class ResultNotFound(TuneError, FileNotFoundError):
    """There is no trial directory at `path`."""

    def __init__(self, message: str, path: str) -> None:
        super().__init__(message)
        self.path = path


class Result:
    """The reports and files of a trial. Each attribute is read on first use.

    `error` is the TrialError that ended the trial, or None; `path` is its directory on
    `filesystem`. `stop_reason` says in a word why the trial has stopped ("finished", "pruned",
    "stopped", "stopper", "budget", "user", "interrupted", "failed"; "unknown" in records of
    earlier versions), and `why` in a sentence; both are "" for a trial that runs or waits, and for
    one that is read from its directory alone.

    A pickle has the last metrics and the config. Everything else is read again after unpickling;
    on another machine, from the trial's storage. A pickle also has the credentials of that
    storage, as a pickled Checkpoint does, but no filesystem object that cannot be pickled.
    """

    stop_reason = ""
    why = ""

    def __init__(
        self,
        metrics: Row | None,
        checkpoint: Checkpoint | None,
        error: TrialError | None,
        path: str,
        metrics_dataframe: pandas.DataFrame | None = None,
        best_checkpoints: list[tuple[Checkpoint, Row]] | None = None,
    ) -> None:
        self.error = error
        self.path = path
        self._stored: StoredTrial | None = None
        # A cached property is an attribute: a value set here is never read from files.
        vars(self).update(
            metrics=metrics,
            checkpoint=checkpoint,
            metrics_dataframe=metrics_dataframe,
            best_checkpoints=best_checkpoints or [],
        )

    # The tags of the run.
    _tags: Mapping[str, str] = MappingProxyType({})

    @classmethod
    def _of(
        cls,
        stored: StoredTrial,
        error: TrialError | None,
        *,
        tags: Mapping[str, str] | None = None,
        stop_reason: str = "",
        why: str = "",
    ) -> Self:
        result = cls.__new__(cls)
        result.error, result.path, result._stored = error, stored.folder.path, stored
        result.stop_reason, result.why = stop_reason, why
        if tags:
            result._tags = tags
        return result

    @classmethod
    def of_trial(
        cls,
        trial: Trial,
        location: Location,
        layout: Layout | None,
        resolve_config: ResolveConfig = config_without_code,
        *,
        tags: Mapping[str, str] | None = None,
        stop_reason: str = "",
        why: str = "",
        kept: CheckpointConfig | None = None,
    ) -> Self:
        """The result of a trial in the records. Reads no file yet.

        `location` is the experiment's place in storage; `layout` its local directory, None if
        there is none. `resolve_config` returns a config with the user's own values. `tags` are the
        experiment's, `kept` says by which score checkpoints are kept.
        """
        folder = TrialFolder.of(trial.spec, location, layout)
        from_worst = reversed(ranked(trial.checkpoints, kept or CheckpointConfig()))
        places = {record.index: place for place, record in enumerate(from_worst)}
        known = tuple(
            StoredCheckpoint(
                dirname=record.dirname,
                iteration=record.iteration,
                persisted=record.persisted,
                place=places[record.index],
            )
            for record in trial.checkpoints
        )
        stored = StoredTrial(
            folder=folder,
            known_checkpoints=known,
            trial=trial,
            resolve_config=resolve_config,
        )
        if trial.status is not Status.ERROR or trial.error is None:
            return cls._of(stored, None, tags=tags, stop_reason=stop_reason, why=why)
        # The output of a trial on a node is in storage.
        shown = folder.location.public if trial.error.node else folder.shown
        error = TrialError(trial.trial_id, trial.error, shown)
        return cls._of(stored, error, tags=tags, stop_reason=stop_reason, why=why)

    @classmethod
    @short_errors
    def from_path(
        cls,
        path: str | os.PathLike[str],
        storage_filesystem: pyarrow.fs.FileSystem | None = None,
    ) -> Self:
        """The result of the trial in the directory `path`, or of the only trial of the experiment
        there: a local path, a URI, or a path on a filesystem.

        Needs no code of the user, and of a trial's directory no state of its experiment. Raises
        ResultNotFound, StorageError.
        """
        return cls._read(TrialFolder.at(Location.resolve(path, storage_filesystem, {})))

    @classmethod
    def _read(cls, folder: TrialFolder) -> Self:
        errors, row = folder.read(ERROR), folder.last_row()
        if errors is None and row is None and folder.read(PARAMS) is None:
            if (only := _only_trial(folder)) is not None:
                return cls._read(only)
            raise ResultNotFound(_not_found(folder), folder.path)
        known = tuple(StoredCheckpoint(dirname=name) for name in folder.complete_checkpoints())
        stored = StoredTrial(folder=folder, known_checkpoints=known)
        if errors is None:
            return cls._of(stored, None)
        error = read_error(errors.decode(errors="replace"), row, folder)
        return cls._of(stored, error, stop_reason=StopReason.FAILED.value if error else "")

    @cached_property
    def metrics(self) -> Row | None:
        """The last row, with the automatic metrics, the config and the experiment tag."""
        if (stored := self._stored) is None:
            return None
        if stored.trial is None:
            return _folder_metrics(stored.folder)
        if stored.best is not None:
            config = stored.resolve_config(stored.trial.config)
            return {**result_metrics(stored.trial, stored.best), "config": config}
        return trial_metrics(stored.trial, stored.folder, stored.resolve_config)

    @property
    def config(self) -> dict[str, Any] | None:
        """The trial's configuration; None if it is not known."""
        return (self.metrics or {}).get("config")

    @property
    def uri(self) -> str | None:
        """The trial's directory as text to paste anywhere, without credentials.

        `Result.from_path` reads it, `tune.load` and `holdfast show` find its experiment. Its form
        is that of `Checkpoint.uri`: an absolute path, or a URI with the query that names a custom
        endpoint. None for a filesystem object that no URI describes.
        """
        if self._stored is None:
            return Location.resolve(self.path, None, {}).uri
        return self._stored.folder.location.uri

    @property
    def usage(self) -> Usage | None:
        """The usage of all attempts: CPU time, memory, GPUs. None if it is not known, as for a
        result of `from_path`."""
        return usage_of_all(self.usages)

    @property
    def usages(self) -> list[Usage]:
        """The usage of each attempt, the newest last; attempts of which nothing is known are
        missing."""
        trial = None if self._stored is None else self._stored.trial
        return [] if trial is None else list(trial.usages)

    @cached_property
    def filesystem(self) -> pyarrow.fs.FileSystem:
        """The pyarrow filesystem that `path` is on."""
        if self._stored is not None:
            return self._stored.folder.location.arrow()[0]
        from pyarrow.fs import LocalFileSystem

        return LocalFileSystem()

    @cached_property
    def checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint; None if there is none.

        For a best row (`at_best`), that row's checkpoint. If it has none, the newest one before
        it; a warning is logged.
        """
        found = self._checkpoint_of_row()
        return None if found is None else found[0]

    @property
    def checkpoint_iteration(self) -> int | None:
        """The iteration of `checkpoint`; None if there is none."""
        found = self._checkpoint_of_row()
        return None if found is None else found[1].iteration

    def at_best(self, metric: str, mode: str) -> Self:
        """This result as of the row with the best finite `metric`: of equal ones the first whose
        checkpoint is kept, otherwise the first.

        Its `metrics` are that row, and its `checkpoint` was reported with it.
        """
        rows = self.rows()
        values = [numeric(row, metric) for row in rows]
        at = index_of_best(values, check_mode(mode))
        if at is None or self._stored is None:
            return self
        kept = {known.dirname for _, known in self._checkpoints}
        equal = [row for row, value in zip(rows, values, strict=True) if value == values[at]]
        with_checkpoint = (row for row in equal if row.get("checkpoint_dir_name") in kept)
        result = type(self)._of(
            replace(self._stored, best=next(with_checkpoint, rows[at])),
            self.error,
            tags=self._tags,
            stop_reason=self.stop_reason,
            why=self.why,
        )
        result._warn_of_checkpoint()
        return result

    def _checkpoint_of_row(self) -> tuple[Checkpoint, StoredCheckpoint] | None:
        known = self._checkpoints
        best = None if self._stored is None else self._stored.best
        if best is not None:
            own = [one for one in known if one[1].dirname == best.get("checkpoint_dir_name")]
            last = best.get("training_iteration", 0)
            known = own or [one for one in known if (one[1].iteration or 0) <= last]
        return known[-1] if known else None

    def _warn_of_checkpoint(self) -> None:
        row = self.metrics or {}
        iteration, own = row.get("training_iteration"), self.checkpoint_iteration
        if not self._checkpoints or own == iteration:
            return
        have = (
            "there is none before it"
            if own is None
            else f"`checkpoint` is that of iteration {own}"
        )
        _log.warning(
            "trial %s: its best row, of iteration %s, has no stored checkpoint; %s",
            row.get("trial_id"),
            iteration,
            have,
        )

    @cached_property
    def best_checkpoints(self) -> list[tuple[Checkpoint, Row]]:
        """The checkpoints that are kept, each with the row of its report.

        The worst is first, by the `checkpoint_score_attribute` of the CheckpointConfig; those that
        lack it count as the worst. Without a score, and for `from_path`, the oldest is first.
        """
        by_place = sorted(self._checkpoints, key=lambda one: one[1].place)
        return self._with_rows(by_place)

    def _with_rows(
        self, checkpoints: Sequence[tuple[Checkpoint, StoredCheckpoint]]
    ) -> list[tuple[Checkpoint, Row]]:
        rows = self.rows() if checkpoints else []
        return [(checkpoint, _row_of(known, rows)) for checkpoint, known in checkpoints]

    @cached_property
    def metrics_dataframe(self) -> pandas.DataFrame | None:
        """A table with a line for each iteration. Raises PandasMissing.

        Nested values are `a/b`, the config is `config/lr`, `experiment_tag` is the trial's, and
        the tags of its run are `tag/data`.
        """
        rows = self.rows()
        tags = tag_columns(self._tags)
        last = (self.metrics or {}) if rows else {}
        same: Row = {name: last[name] for name in ("config", "experiment_tag") if name in last}
        return dataframe([{**columns_of({**same, **row}), **tags} for row in rows])

    def rows(self) -> list[Row]:
        """The row of every iteration, read from `result.json` each time."""
        if (stored := self._stored) is None:
            return []
        folder, trial = stored.folder, stored.trial
        return (folder.rows() if trial is None else rows_of(trial, folder)).rows()

    @property
    def plot(self) -> ResultPlots:
        """Pictures, with matplotlib: `result.plot.learning_curves("loss")` returns its Axes."""
        from holdfast.results.drawing import ResultPlots

        return ResultPlots(self)

    @short_errors
    def get_best_checkpoint(self, metric: str, mode: str) -> Checkpoint | None:
        """The checkpoint that was reported with the best `metric` (`a/b` for a nested one).

        `mode` is "max" or "min". Of equal ones the oldest counts. NaN, infinity and values that
        are not numbers are never best. Raises NoBestResult if there is none, naming the metrics
        that were reported with checkpoints.
        """
        known = (
            self.best_checkpoints if self._stored is None else self._with_rows(self._checkpoints)
        )
        rows = [row for _, row in known]
        at = index_of_best([numeric(row, metric) for row in rows], check_mode(mode))
        if at is None:
            raise self._no_best_checkpoint(metric, rows)
        return known[at][0]

    def _no_best_checkpoint(self, metric: str, rows: Sequence[Row]) -> NoBestResult:
        if not rows:
            known = () if self._stored is None else self._stored.known_checkpoints
            kept = sum(not one.persisted for one in known)
            why = (
                f": {kept} of its checkpoints never reached storage (NO_UPLOAD, or the run was "
                f"cut off), and are not on this machine"
            )
            return NoBestResult(f"{self.path} has no checkpoint{why if kept else ''}", metric)
        names = reported_names(rows)
        if any(numeric(row, metric) is not None for row in rows):
            return NoBestResult(
                f"{metric!r} is NaN or infinite in the reports of all {len(rows)} checkpoints",
                metric,
                names,
            )
        return NoBestResult(
            f"no checkpoint of {self.path} was reported with a numeric {metric!r}. "
            f"Reported metrics: {', '.join(names)}",
            metric,
            names,
        )

    @cached_property
    def _checkpoints(self) -> list[tuple[Checkpoint, StoredCheckpoint]]:
        """Without those that were not persisted and are not on this machine."""
        if (stored := self._stored) is None:
            return []
        known = stored.known_checkpoints
        found = (stored.folder.checkpoint(one.dirname, persisted=one.persisted) for one in known)
        return [(made, one) for made, one in zip(found, known, strict=True) if made is not None]

    def __getstate__(self) -> dict[str, Any]:
        stored = self._stored
        if stored is None:
            return {name: value for name, value in vars(self).items() if name != "filesystem"}
        state = {
            "error": self.error,
            "path": self.path,
            "stop_reason": self.stop_reason,
            "why": self.why,
            "_stored": replace(stored, folder=stored.folder.for_pickle()),
            "_tags": dict(self._tags),
        }
        # The last row is in the run's records; without them, only in the folder.
        return state if stored.trial is not None else {**state, "metrics": self.metrics}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if (stored := self._stored) is not None:
            self._stored = replace(stored, folder=stored.folder.after_unpickle())

    def _shown_metrics(self) -> Row:
        """The metrics to show; read from files only if the records lack them."""
        stored = self._stored
        if stored is None or stored.trial is None or stored.best is not None:
            return self.metrics or {}
        return recorded_row(stored.trial)

    @property
    def _plain_config(self) -> Mapping[str, Any]:
        """The config; the user's objects in it are placeholders, so that none is unpickled."""
        trial = None if self._stored is None else self._stored.trial
        return (self.config or {}) if trial is None else trial.config

    def _shown_config(self) -> Iterator[str]:
        items = list(self._plain_config.items())
        for key, value in items[:_SHOWN_METRICS]:
            yield f"{key!r}: {getattr(value, 'summary', None) or repr(value):.40}"
        if len(items) > _SHOWN_METRICS:
            yield f"... {len(items) - _SHOWN_METRICS} more"

    def _repr_html_(self) -> str:
        from holdfast.results.notebook_html import result_html

        return result_html(
            self.uri or self.path,
            self._shown_metrics(),
            self._plain_config,
            checkpoint=self.checkpoint,
            error=self.error,
            stop_reason=self.stop_reason,
        )

    if not TYPE_CHECKING:  # a type checker should report the attribute itself

        def __getattr__(self, name: str) -> Any:
            return explained_attribute(self, name)

    def __repr__(self) -> str:
        metrics = self._shown_metrics()
        shown = {key: value for key, value in metrics.items() if key not in AUTOMATIC}
        more = len(shown) - _SHOWN_METRICS
        parts = [f"{key!r}: {value!r:.40}" for key, value in list(shown.items())[:_SHOWN_METRICS]]
        lines = [
            f"metrics={{{', '.join(parts)}{f', ... {more} more' if more > 0 else ''}}}",
            f"config={{{', '.join(self._shown_config())}}}",
            f"training_iteration={metrics.get('training_iteration', 0)}",
            f"path={self.path!r}" if self.uri in (None, self.path) else f"uri={self.uri!r}",
            f"checkpoint={self.checkpoint!r}",
        ]
        if self.error is not None:
            lines.append(f"error={self.error.failure.headline!r:.200}")
        return "Result(\n  " + ",\n  ".join(lines) + ",\n)"


def _row_of(known: StoredCheckpoint, rows: Sequence[Row]) -> Row:
    """The row of a checkpoint's report; for a checkpoint saved at the end, the row of its
    iteration."""
    for row in rows:
        if row.get("checkpoint_dir_name") == known.dirname:
            return row
    same = (row for row in rows if row.get("training_iteration") == known.iteration)
    return next(same, {} if known.iteration is None else {"training_iteration": known.iteration})


def _only_trial(folder: TrialFolder) -> TrialFolder | None:
    """The trial of an experiment that has one; None if no experiment is in the folder."""
    from holdfast.results.reading import ExperimentNotFound, read_records

    if not folder.exists():
        return None
    try:
        read = read_records(folder.location)
    except ExperimentNotFound:
        return None
    specs = [trial.spec for trial in read.machine.trials.values()]
    if len(specs) == 1:
        return TrialFolder.of(specs[0], read.location, read.layout)
    pass_one = f", or pass the directory of a trial, such as {specs[0].dirname}" if specs else ""
    raise ResultNotFound(
        f"{folder.path} is the directory of an experiment with {len(specs)} trials: tune.load "
        f"returns their results{pass_one}",
        folder.path,
    )


def _not_found(folder: TrialFolder) -> str:
    if folder.exists():
        return (
            f"{folder.path} is not a trial directory: it has no {RESULTS}, {PARAMS} or {ERROR}, "
            f"and no experiment"
        )
    return f"there is no trial directory at {folder.path}"
