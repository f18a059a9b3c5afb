"""What a resume of an interrupted run repeats."""

from __future__ import annotations

from holdfast.experiment.control.watch import repeated_text
from holdfast.trial.trial import CheckpointRecord, Status, Trial, TrialSpec


def trial(iteration: int, saved: int = 0, status: Status = Status.PENDING) -> Trial:
    """A trial that takes 2 s per iteration."""
    checkpoint = CheckpointRecord(
        index=0,
        iteration=saved,
        attempt=1,
        size_bytes=1,
        files=1,
        time_total_s=2.0 * saved,
    )
    return Trial(
        spec=TrialSpec(trial_id="a", index=0, name="a", dirname="a", config={}),
        status=status,
        iteration=iteration,
        time_total_s=2.0 * iteration,
        checkpoints=(checkpoint,) if saved else (),
    )


def test_trials_without_a_checkpoint_start_over() -> None:
    text = repeated_text([trial(12), trial(8)])
    assert "2 unfinished trials have no checkpoint and will start over" in text
    assert "repeats 20 iterations (40s of training). Pass report() a checkpoint" in text
    assert repeated_text([trial(1)]).startswith("1 unfinished trial has no checkpoint")


def test_a_trial_repeats_what_it_reported_after_its_checkpoint() -> None:
    text = repeated_text([trial(12, saved=10)])
    assert (
        text == "1 trial will resume from a checkpoint and repeat 2 iterations (4.0s of training)."
    )


def test_nothing_is_repeated_of_trials_that_have_ended_or_saved_or_not_reported() -> None:
    ended = trial(5, status=Status.TERMINATED)
    assert repeated_text([ended, trial(4, saved=4), trial(0)]) == ""
