"""The lifecycle table: what each event does, and that every other one is refused."""

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import get_args

import pytest

from holdfast.testing.rehearsal import failure
from holdfast.trial.errors import InvalidTransition
from holdfast.trial.events import (
    Committed,
    Dropped,
    HoldEnded,
    Launched,
    Reopened,
    Retried,
    TrialEvent,
)
from holdfast.trial.lifecycle import TABLE, advance
from holdfast.trial.trial import Status, Trial
from tests.rig.lifecycle_page import page
from tests.rig.scheduler.samples import CHECKPOINT, REPORTED, TRIAL_EVENTS, trial_in

IMPOSSIBLE = [
    pytest.param(status, event, id=f"{status} {type(event).__name__}")
    for status, event in product(Status, TRIAL_EVENTS)
    if (status, type(event)) not in TABLE
]


@pytest.mark.parametrize(("status", "event"), IMPOSSIBLE)
def test_an_event_without_a_row_raises_with_the_trials_story(
    status: Status, event: TrialEvent
) -> None:
    trial = trial_in(status)
    with pytest.raises(InvalidTransition) as caught:
        advance(trial, event)
    assert caught.value.event is event
    assert caught.value.story == trial.story()
    assert f"trial t0 ({status}, attempt 2, iteration 6, 1 failures)" in str(caught.value)
    assert type(event).__name__ in str(caught.value)


@pytest.mark.parametrize(
    ("status", "kind"), TABLE, ids=lambda part: getattr(part, "__name__", part)
)
def test_a_row_gives_a_new_trial_and_leaves_the_old_one(status: Status, kind: type) -> None:
    (event,) = [event for event in TRIAL_EVENTS if type(event) is kind]
    is_held = kind is HoldEnded  # otherwise nothing changes
    before, trial = (replace(trial_in(status), is_held=is_held) for _ in range(2))
    after = advance(trial, event)
    assert trial == before
    assert after != before
    assert replace(after.spec, resources=trial.spec.resources) == trial.spec


def test_every_kind_of_event_has_a_row() -> None:
    assert {kind for _, kind in TABLE} == set(get_args(TrialEvent))


def test_a_launch_without_a_checkpoint_begins_at_nothing() -> None:
    fresh = Trial(spec=trial_in(Status.PENDING).spec, time_total_s=9.0)
    trial = advance(fresh, Launched(trial_id="t0"))
    assert (trial.iteration, trial.resumed_from, trial.time_total_s) == (0, 0, 0.0)


@pytest.mark.parametrize("status", [Status.RUNNING, Status.STOPPING])
def test_a_report_is_the_trials_newest_row(status: Status) -> None:
    trial = advance(trial_in(status), REPORTED)
    assert trial.status is status
    assert trial.row == REPORTED.metrics
    assert (trial.iteration, trial.time_this_iter_s, trial.time_total_s) == (7, 0.5, 3.5)
    assert trial.reported_at == REPORTED.timestamp
    assert trial.newest_checkpoint == CHECKPOINT
    assert trial.next_checkpoint == 3


def test_a_retry_counts_unless_it_was_no_fault_of_the_trial() -> None:
    counted = Retried(trial_id="t0", failure=failure())
    free = Retried(trial_id="t0", failure=failure(), budget=None)
    assert advance(trial_in(Status.RUNNING), counted).failures == 2
    assert advance(trial_in(Status.RUNNING), free).failures == 1
    assert advance(trial_in(Status.RUNNING), free).status is Status.PENDING


def test_a_trial_that_is_reopened_has_its_whole_budget_again() -> None:
    resumed = advance(trial_in(Status.ERROR), Reopened(trial_id="t0", from_scratch=False))
    assert (resumed.status, resumed.failures, resumed.error) == (Status.PENDING, 0, None)
    assert len(resumed.checkpoints) == 2
    again = advance(trial_in(Status.ERROR), Reopened(trial_id="t0", from_scratch=True))
    assert (again.checkpoints, again.row, again.iteration) == ((), None, 0)
    assert again.next_checkpoint == 2


@pytest.mark.parametrize("status", Status)
def test_a_checkpoint_is_committed_or_dropped_whatever_the_trial_does(status: Status) -> None:
    trial = advance(trial_in(status), Committed(trial_id="t0", index=1))
    assert [checkpoint.committed for checkpoint in trial.checkpoints] == [False, True]
    trial = advance(trial, Dropped(trial_id="t0", index=0))
    assert [checkpoint.index for checkpoint in trial.checkpoints] == [1]
    assert trial.status is status


def test_the_page_in_the_docs_says_what_the_table_says() -> None:
    path = Path(__file__).parents[2] / "docs" / "lifecycle.md"
    assert path.read_text() == page(), f"write it anew: see the first lines of {path}"
