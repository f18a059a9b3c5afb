"""Writes many trials to the tables of an Optuna storage at once.

Before Optuna's `add_trial` inserts an intermediate value, it asks the database for the trial and
for a value of the same step, and flushes its session: a million values take hours. `Adding` takes
one statement for each table and batch of trials. Only the tables of Optuna 3.2 to 5
are known.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from optuna.distributions import distribution_to_json
from optuna.storages._rdb import models
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

# The rows of a transaction: SQLite is locked for some 0.1 s, and syncs the file once.
_BATCH = 10_000


class Adding:
    """Adds trials to `study`, which is in the RDBStorage `database`. They are there after
    `flush`."""

    def __init__(self, study: Any, database: Any) -> None:
        self._study, self._database = study, database
        self._waiting: list[Any] = []
        self._rows = 0

    def add(self, trial: Any) -> None:
        """Add a FrozenTrial, which `create_trial` has checked."""
        self._waiting.append(trial)
        self._rows += len(trial.intermediate_values) + len(trial.params) + len(trial.user_attrs)
        if self._rows >= _BATCH:
            self.flush()

    def flush(self) -> None:
        """Write the trials that wait. Errors of Optuna's storage pass through."""
        trials, self._waiting, self._rows = self._waiting, [], 0
        if not trials:
            return
        try:
            self._insert(trials)
        except SQLAlchemyError:  # such as a locked database: Optuna tries it five times
            for trial in trials:
                self._study.add_trial(trial)

    def _insert(self, trials: Sequence[Any]) -> None:
        with Session(self._database.engine) as session, session.begin():
            made = self._numbered(session, trials)
            tables: dict[Any, list[Mapping[str, Any]]] = {}
            for row, trial in zip(made, trials, strict=True):
                for model, columns in _rows_of(trial):
                    tables.setdefault(model, []).append({"trial_id": row.trial_id, **columns})
            for model, rows in tables.items():
                session.connection().execute(model.__table__.insert(), rows)

    def _numbered(self, session: Session, trials: Sequence[Any]) -> list[Any]:
        """The rows of the trials, with ids and numbers. The lock on the study, or SQLite's on the
        file, keeps others from adding a trial with the same number."""
        study_id = self._database.get_study_id_from_name(self._study.study_name)
        models.StudyModel.find_or_raise_by_id(study_id, session, for_update=True)
        made = [
            models.TrialModel(
                study_id=study_id,
                state=trial.state,
                datetime_start=trial.datetime_start,
                datetime_complete=trial.datetime_complete,
            )
            for trial in trials
        ]
        session.add_all(made)
        session.flush()
        in_order = sorted(made, key=lambda row: row.trial_id)
        first = in_order[0].count_past_trials(session)
        for number, row in enumerate(in_order, first):
            row.number = number
        session.flush()
        return made


def _rows_of(trial: Any) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """The rows of a trial: the table of each, and its columns."""
    model: Any = models.TrialValueModel
    for objective, value in enumerate(trial.values or ()):
        stored, kind = model.value_to_stored_repr(value)
        yield model, {"objective": objective, "value": stored, "value_type": kind}
    for name, value in trial.params.items():
        distribution = trial.distributions[name]
        yield (
            models.TrialParamModel,
            {
                "param_name": name,
                "param_value": distribution.to_internal_repr(value),
                "distribution_json": distribution_to_json(distribution),
            },
        )
    for key, value in trial.user_attrs.items():
        yield models.TrialUserAttributeModel, {"key": key, "value_json": json.dumps(value)}
    model = models.TrialIntermediateValueModel
    for step, value in trial.intermediate_values.items():
        stored, kind = model.intermediate_value_to_stored_repr(value)
        row = {"step": step, "intermediate_value": stored, "intermediate_value_type": kind}
        yield model, row
