"""What a tracker lacks, computed from its progress and that of each trial."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.experiment.trackers.delivery import (
    Account,
    DeliveryState,
    Mark,
    TrackerCall,
    TrackerJob,
    encode_state,
)
from holdfast.experiment.trackers.supervisor import as_text, list_missing, undelivered
from holdfast.trial.trial import Status, Trial, TrialSpec

SPEC = TrialSpec(trial_id="a_0", index=0, name="train_a_0", dirname="d", config={})
TRIAL = Trial(spec=SPEC, status=Status.RUNNING, attempt=1, iteration=20)
ENDED = replace(TRIAL, status=Status.TERMINATED)


def job_in(folder: Path) -> TrackerJob:
    return TrackerJob(
        root=str(folder),
        experiment_id="e",
        trainable="t",
        experiment_path="",
        begins=0,
        name="T",
        file="T",
    )


def missing(trial: Trial, delivered: Mark | None = None) -> list[dict[str, Any]]:
    account = Account() if delivered is None else Account(delivered=delivered)
    return list(undelivered({"a_0": account}, [trial]))


def iterations(trial: Trial, delivered: Mark | None = None) -> list[str]:
    (listed,) = missing(trial, delivered)
    found: list[str] = listed["iterations"]
    return found


def test_what_lies_behind_the_mark_is_missing() -> None:
    assert iterations(TRIAL) == ["1-20"]
    assert iterations(TRIAL, Mark(attempt=1, iteration=4)) == ["5-20"]
    assert iterations(ENDED, Mark(attempt=1, iteration=19)) == ["20"]


def test_nothing_is_missing_where_the_mark_is_the_newest_row_or_the_end() -> None:
    assert missing(TRIAL, Mark(attempt=1, iteration=20)) == []
    assert missing(ENDED, Mark(attempt=1, iteration=20, stage=4)) == []
    assert missing(Trial(spec=SPEC)) == []


def test_an_end_alone_is_listed_as_that() -> None:
    (listed,) = missing(ENDED, Mark(attempt=1, iteration=20))
    assert listed["only_its_end"]
    assert as_text([listed]) == "train_a_0: its start or end"


def test_repeated_iterations_are_listed_by_their_attempt() -> None:
    trial = replace(TRIAL, attempt=4, resumed_from=10)
    assert iterations(trial, Mark(attempt=1, iteration=8)) == [
        "9 and later (attempt 1)",
        "all (attempt 2-3)",
        "11-20 (attempt 4)",
    ]
    assert iterations(trial, Mark(attempt=4, iteration=15)) == ["16-20 (attempt 4)"]


def test_of_an_attempt_that_ended_and_was_reopened_nothing_is_missing() -> None:
    trial = replace(TRIAL, attempt=2, resumed_from=10)
    mark = Mark(attempt=1, iteration=10, stage=4)
    assert iterations(trial, mark) == ["11-20 (attempt 2)"]


def test_the_list_is_a_file_while_anything_is_missing(tmp_path: Path) -> None:
    job, state = job_in(tmp_path), DeliveryState()
    layout = job.layout
    first, second = (
        TrackerCall(
            trial=replace(TRIAL, iteration=at),
            hook="on_trial_result",
            mark=Mark(attempt=1, iteration=at, stage=2, rows=at),
        )
        for at in (1, 2)
    )
    state.mark_given(first)
    state.refuse(second, "too long")
    state.acknowledge()
    layout.tracker_cursor("T").write_text(json.dumps(encode_state("e", state)))
    assert list_missing(job, [TRIAL]) == "train_a_0: iterations 3-20, 2"
    listed = json.loads(layout.undelivered("T").read_text())
    assert listed == {
        "tracker": "T",
        "undelivered": [
            {
                "trial": "a_0",
                "name": "train_a_0",
                "iterations": ["3-20"],
                "refused": [{"iterations": "2", "why": "too long"}],
                "only_its_end": False,
            }
        ],
    }
    assert list_missing(job, []) == ""
    assert not layout.undelivered("T").exists()


def test_everything_is_missing_where_no_one_knows_what_was_delivered(tmp_path: Path) -> None:
    job = job_in(tmp_path)
    job.layout.tracker_cursor("T").write_text("{")
    assert list_missing(job, [TRIAL]) == "train_a_0: iterations 1-20"


def test_long_lists_are_reported_in_a_line() -> None:
    many = [
        {"name": f"t{at}", "iterations": ["1-9"], "refused": [], "only_its_end": False}
        for at in range(7)
    ]
    assert as_text(many[:1]) == "t0: iterations 1-9"
    assert as_text(many).endswith("; and 2 other trials")
