"""The words for counts, storage and failures, and the cells of the table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.experiment.progress.summary import StorageAge
from holdfast.experiment.progress.trial_table import table_of
from holdfast.experiment.progress.wording import closing_text, counts_text, storage_text
from holdfast.trial.trial import Status
from tests.experiment.progress.screens import DONE, SUMMARY


def test_trials_that_do_not_exist_yet_are_distinguished_from_those_that_wait() -> None:
    assert counts_text(SUMMARY) == "6 trials: 1 finished, 1 failed, 1 running, 3 not created yet"


def test_without_a_total_only_what_is_there_is_counted() -> None:
    assert counts_text(replace(SUMMARY, total=None)) == "1 finished, 1 failed, 1 running"


def test_the_last_line_counts_trials_time_and_failures() -> None:
    assert closing_text(DONE) == "24 trials in 1m 20s: 23 finished, 1 failed"
    one = replace(DONE, counts={Status.PENDING: 1})
    assert closing_text(one) == "6 trials in 1m 20s: 1 queued, 5 not created"
    assert closing_text(replace(one, total=1)) == "1 trial in 1m 20s: 1 queued"
    assert closing_text(replace(DONE, counts={})) == "6 trials in 1m 20s: 6 not created"


@pytest.mark.parametrize(
    ("storage", "text"),
    [
        (None, ""),
        (StorageAge(), ""),
        (StorageAge(trouble="the disk is full"), "the disk is full"),
        (StorageAge(oldest_s=4.0), "storage has everything up to 4.0s ago"),
        (
            StorageAge(oldest_s=400.0),
            "storage has everything up to 6m 40s ago, too long: storage is slow or does "
            "not answer",
        ),
        (
            StorageAge(oldest_s=61.0, checkpoints=1, files=1, pending_bytes=999),
            "1 checkpoint (1 file, 999 B) waits for storage, the oldest for 1m 01s, too long: "
            "storage is slow or does not answer",
        ),
        (
            StorageAge(oldest_s=61.0, checkpoints=2, files=4, trouble="no answer"),
            "2 checkpoints (4 files, 0 B) wait for storage, the oldest for 1m 01s; no answer",
        ),
    ],
)
def test_what_is_not_in_storage_yet_is_reported_with_its_age(
    storage: StorageAge | None, text: str
) -> None:
    assert storage_text(replace(SUMMARY, storage=storage)) == text


def test_columns_whose_names_end_alike_can_be_distinguished() -> None:
    alike = replace(DONE, metrics=("val/loss", "train/loss", "lr"), params=("net/lr", "opt/lr"))
    headers, _ = table_of(replace(alike, params=(*alike.params, "lr", "opt/beta")))
    assert headers[4:] == [
        *("val/loss", "net/lr", "opt/lr", "config/lr", "beta", "train/loss", "lr"),
    ]


def test_none_is_a_value_and_a_parameter_that_does_not_apply_is_empty() -> None:
    given: list[dict[str, Any]] = [{"flag": None}, {"depth": 3}]
    rows = tuple(
        replace(row, params=params) for row, params in zip(DONE.rows, given, strict=False)
    )
    headers, lines = table_of(replace(DONE, rows=rows, params=("flag", "depth")))
    at = headers.index("flag")
    assert [line[at : at + 2] for line in lines] == [["None", ""], ["", "3"]]
