from dataclasses import replace

import pytest

from holdfast.experiment.trackers.delivery import (
    RECORDS_LOST,
    DeliveryState,
    DeliveryStatus,
    Mark,
    RetryDelays,
    TrackerCall,
    decode_accounts,
    encode_state,
    reached,
)
from holdfast.scheduler.events import Suggested
from holdfast.trial.events import Reported, Started
from holdfast.trial.trial import CheckpointRecord, Place, Status, Trial, TrialSpec

SPEC = TrialSpec(trial_id="a_0", index=0, name="train_a_0", dirname="d", config={})
PENDING = Trial(spec=SPEC)
TRIAL = Trial(spec=SPEC, status=Status.RUNNING, attempt=1, place=Place(pid=1))
STARTED = Started(trial_id="a_0", attempt=1, pid=1, hostname="", node_ip="")


def at(iteration: int, attempt: int = 1) -> Trial:
    return replace(TRIAL, iteration=iteration, attempt=attempt)


def rows(state: DeliveryState, *iterations: int, attempt: int = 1) -> list[TrackerCall]:
    """The calls for these rows."""
    found = []
    for iteration in iterations:
        event = report(iteration, attempt)
        found += state.read(event, at(iteration - 1, attempt), at(iteration, attempt))
    return found


def delivered(state: DeliveryState) -> int:
    return state.accounts["a_0"].delivered.iteration


def later(state: DeliveryState, experiment_id: str = "e") -> DeliveryState:
    """The accounts of the next tracker process."""
    return DeliveryState(decode_accounts(encode_state("e", state), experiment_id))


def report(iteration: int, attempt: int = 1) -> Reported:
    return Reported(
        trial_id="a_0",
        attempt=attempt,
        iteration=iteration,
        metrics={},
        timestamp=0.0,
        time_this_iter_s=0.0,
        time_total_s=0.0,
    )


def test_calls_follow_one_another_by_attempt_iteration_and_kind() -> None:
    state = DeliveryState()
    assert state.read(Suggested(spec=SPEC), None, PENDING) == []
    found = state.read(STARTED, replace(TRIAL, place=Place()), TRIAL)
    found += rows(state, 1, 2)
    found += rows(state, 2, attempt=2)
    ended = replace(at(2, 2), status=Status.TERMINATED)
    found += state.read(None, at(2, 2), ended)
    assert [(one.hook, one.mark.rows) for one in found] == [
        ("on_trial_start", 0),
        ("on_trial_result", 1),
        ("on_trial_result", 2),
        ("on_trial_result", 3),
        ("on_trial_complete", 3),
    ]
    assert sorted(found, key=lambda call: call.mark) == found
    assert found[-1].mark == reached(ended)


def test_the_newest_call_of_a_trial_is_known_from_the_trial() -> None:
    record = CheckpointRecord(
        index=0, iteration=3, attempt=1, files=1, size_bytes=1, time_total_s=1.0
    )
    saved = replace(at(3), checkpoints=(record,))
    found = DeliveryState().read(replace(report(3), checkpoint=record), at(2), saved)
    assert [one.hook for one in found] == ["on_trial_result", "on_trial_save"]
    assert found[-1].mark == reached(saved)
    resumed = replace(saved, attempt=2, resumed_from=3)
    again = DeliveryState().read(
        replace(STARTED, attempt=2), replace(resumed, place=Place()), resumed
    )
    assert [one.hook for one in again] == ["on_trial_start", "on_trial_restore"]
    assert again[-1].mark == reached(resumed)
    assert reached(PENDING) == Mark()


def test_what_was_given_counts_as_delivered_when_it_is_acknowledged() -> None:
    state = DeliveryState()
    first, second = rows(state, 1, 2)
    state.mark_given(first)
    state.acknowledge()
    state.mark_given(second)
    assert delivered(state) == 1
    assert not state.are_settled


def test_a_trial_that_a_tracker_holds_back_is_not_acknowledged() -> None:
    state = DeliveryState()
    for row in rows(state, 1):
        state.mark_given(row)
    state.acknowledge(held=["a_0"])
    assert delivered(state) == 0
    state.acknowledge()
    assert delivered(state) == 1
    assert state.are_settled


def test_a_changed_number_in_what_is_kept_is_found() -> None:
    """Rows behind a mark that is too high would never be delivered."""
    state = DeliveryState()
    state.mark_given(rows(state, 1)[0])
    state.acknowledge()
    kept = encode_state("e", state)
    assert decode_accounts(kept, "e")["a_0"].delivered.iteration == 1
    kept["trials"]["a_0"]["delivered"]["iteration"] = 3
    with pytest.raises(ValueError, match="checksum is wrong"):
        decode_accounts(kept, "e")
    with pytest.raises(ValueError, match="its format is 2"):
        decode_accounts({**kept, "format": 2}, "e")


def test_a_later_tracker_process_continues_after_what_was_acknowledged() -> None:
    state = DeliveryState()
    first, second = rows(state, 1, 2)
    state.mark_given(first)
    state.acknowledge()
    state.mark_given(second)
    assert [row.mark.rows for row in rows(later(state), 1, 2)] == [2]


def test_what_was_refused_is_retried_by_a_later_tracker_process() -> None:
    state = DeliveryState()
    first, second, third, fourth = rows(state, 1, 2, 3, 4)
    state.mark_given(first)
    state.refuse(second, "too long")
    state.refuse(third, "too long")
    state.mark_given(fourth)
    state.acknowledge()
    assert not state.are_settled
    (span,) = state.accounts["a_0"].refused
    assert (str(span), span.why) == ("2-3", "too long")
    assert [row.mark.rows for row in rows(later(state), 1, 2, 3, 4)] == [2, 3, 4]


def test_waits_grow_to_a_bound_and_are_spread_at_random() -> None:
    standing = DeliveryStatus(delays=RetryDelays(first_s=1, longest_s=8))
    waits = []
    for _ in range(5):
        standing = standing.after_failure(now=100, chance=0)
        waits.append(standing.not_before - 100)
    assert waits == [1, 2, 4, 8, 8]
    assert standing.after_failure(now=0, chance=1).not_before == 4
    assert standing.after_success() == DeliveryStatus(delays=standing.delays)


def test_a_refusal_gets_some_tries_and_the_next_one_a_single_one() -> None:
    standing = DeliveryStatus(delays=RetryDelays(tries=2))
    assert not standing.is_last_try
    standing = standing.after_failure(now=0, chance=0)
    assert standing.is_last_try
    assert standing.after_refusal().is_last_try
    assert not standing.after_refusal().after_success().is_last_try


def test_rows_that_are_in_no_record_any_more_are_named() -> None:
    state = DeliveryState()
    started = state.read(STARTED, PENDING, TRIAL)
    for call in [*started, *rows(state, 1, 2)]:
        state.mark_given(call)
    state.acknowledge()
    anew = later(state)
    assert anew.begin_anew(at(5)) == []
    (span,) = anew.accounts["a_0"].refused
    assert (str(span), span.why) == ("3-5", RECORDS_LOST)
    assert not anew.are_settled
    # Later calls are made as always, and earlier ones are not repeated.
    assert rows(anew, 5) == []
    assert [call.mark.iteration for call in rows(anew, 6)] == [6]
    # The next tracker process reads the same journal, and names the same rows.
    again = later(anew)
    again.begin_anew(at(5))
    assert again.accounts["a_0"].refused == (span,)


def test_the_end_of_a_trial_is_reported_though_its_records_are_lost() -> None:
    for status, hook in (
        (Status.TERMINATED, "on_trial_complete"),
        (Status.ERROR, "on_trial_error"),
    ):
        state = DeliveryState()
        (call,) = state.begin_anew(replace(at(2), status=status))
        assert (call.hook, call.mark.is_end) == (hook, True)
