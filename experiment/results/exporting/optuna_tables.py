"""Adds trials to an Optuna study in a database, many in one transaction.

Before Optuna's `add_trial` inserts an intermediate value, it asks the database for the trial and
for a value of the same step, and flushes its session: a million values take hours. Here a batch of
trials takes one statement for each table. Only the schema of Optuna 3.2 to 5 is known; trials for
another one, or for a storage without tables, pass through `add_trial`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

_SCHEMA = "v3.2.0.a"
# The rows of a transaction: SQLite is locked for some 0.1 s, and syncs the file once.
_BATCH = 10_000


class Adding:
    """Adds trials to `study`. Those of a known database are there after `flush`.

    `database` is the RDBStorage of the study; None for another storage.
    """

    def __init__(self, study: Any, database: Any | None) -> None:
        self._study = study
        is_known = database is not None and database.get_current_version() == _SCHEMA
        self._database: Any = database if is_known else None
        self._waiting: list[Any] = []
        self._rows = 0

    def add(self, trial: Any) -> None:
        """Add a FrozenTrial, which `create_trial` has checked."""
        if self._database is None:
            self._study.add_trial(trial)
            return
        self._waiting.append(trial)
        self._rows += len(trial.intermediate_values) + len(trial.params) + len(trial.user_attrs)
        if self._rows >= _BATCH:
            self.flush()

    def flush(self) -> None:
        """Write the trials that wait. Errors of Optuna's storage pass through."""
        trials, self._waiting, self._rows = self._waiting, [], 0
        if not trials:
            return
        from sqlalchemy.exc import SQLAlchemyError

        try:
            self._insert(trials)
        except SQLAlchemyError:  # such as a locked database: Optuna tries it five times
            for trial in trials:
                self._study.add_trial(trial)

    def _insert(self, trials: Sequence[Any]) -> None:
        from optuna.storages._rdb import models
        from sqlalchemy.orm import Session

        with Session(self._database.engine) as session, session.begin():
            made = self._numbered(models, session, trials)
            tables = (
                (models.TrialValueModel, _values),
                (models.TrialParamModel, _params),
                (models.TrialUserAttributeModel, _attributes),
                (models.TrialIntermediateValueModel, _steps),
            )
            for model, rows_of in tables:
                rows = [
                    {"trial_id": row.trial_id, **columns}
                    for row, trial in zip(made, trials, strict=True)
                    for columns in rows_of(model, trial)
                ]
                if rows:
                    session.connection().execute(model.__table__.insert(), rows)

    def _numbered(self, models: Any, session: Any, trials: Sequence[Any]) -> list[Any]:
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


_Rows = list[Mapping[str, Any]]


def _values(model: Any, trial: Any) -> _Rows:
    rows: _Rows = []
    for objective, value in enumerate(trial.values or ()):
        stored, kind = model.value_to_stored_repr(value)
        rows.append({"objective": objective, "value": stored, "value_type": kind})
    return rows


def _params(_model: Any, trial: Any) -> _Rows:
    from optuna.distributions import distribution_to_json

    return [
        {
            "param_name": name,
            "param_value": trial.distributions[name].to_internal_repr(value),
            "distribution_json": distribution_to_json(trial.distributions[name]),
        }
        for name, value in trial.params.items()
    ]


def _attributes(_model: Any, trial: Any) -> _Rows:
    return [
        {"key": key, "value_json": json.dumps(value)} for key, value in trial.user_attrs.items()
    ]


def _steps(model: Any, trial: Any) -> _Rows:
    rows: _Rows = []
    for step, value in trial.intermediate_values.items():
        stored, kind = model.intermediate_value_to_stored_repr(value)
        row = {"step": step, "intermediate_value": stored, "intermediate_value_type": kind}
        rows.append(row)
    return rows
