"""The effect of a restore on the existing trials."""

from dataclasses import replace
from typing import Any

import pytest

from holdfast.scheduler.effects import Commit, Effect, Finish, Launch
from holdfast.testing.rehearsal import Rehearsal, next_checkpoint
from holdfast.trial.config import CheckpointConfig, FailureConfig
from holdfast.trial.events import Saved
from holdfast.trial.trial import Status


def crashed(**spec: Any) -> Rehearsal:
    """t0 ended, t1 errored, t2 ran, t3 waits; then the controller was killed."""
    run = Rehearsal(capacity={"CPU": 1}, resources=None, **spec)
    run.suggest()
    run.suggest()
    run.start("t0")
    run.report("t0", checkpoint=True)
    run.commit("t0", 0)
    run.ends("t0")
    run.suggest()
    run.start("t1")
    run.report("t1", checkpoint=True)
    run.commit("t1", 0)
    run.fails("t1")
    run.exits("t1")
    run.suggest()
    run.start("t2")
    run.report("t2", checkpoint=True)
    run.crash()
    return run


def launches(effects: list[Effect]) -> list[str]:
    return [effect.trial_id for effect in effects if isinstance(effect, Launch)]


def statuses(run: Rehearsal) -> str:
    return " ".join(trial.status for trial in run.machine.trials.values())


def test_a_restore_resumes_what_had_begun_then_what_waited() -> None:
    run = crashed()
    assert statuses(run) == "TERMINATED ERROR RUNNING PENDING"
    effects = run.resume()
    assert launches(effects) == ["t2"]
    assert list(run.machine.placement.queue) == ["t3"]
    assert statuses(run) == "TERMINATED ERROR STARTING PENDING"


def test_a_resumed_trial_begins_at_its_newest_checkpoint_with_a_new_attempt() -> None:
    run = crashed()
    (launch,) = [effect for effect in run.resume() if isinstance(effect, Launch)]
    assert launch.attempt == 2
    assert launch.checkpoint is not None
    assert launch.checkpoint.iteration == 1
    assert run.trial("t2").resumed_from == 1


@pytest.mark.parametrize(
    ("wishes", "waiting"),
    [
        ({}, ["t2", "t3"]),
        ({"errored": "resume"}, ["t1", "t2", "t3"]),
        ({"errored": "restart"}, ["t1", "t2", "t3"]),
        ({"finished": "resume"}, ["t0", "t2", "t3"]),
        ({"unfinished": "skip"}, ["t3"]),
        ({"unfinished": "skip", "errored": "resume"}, ["t1", "t3"]),
        ({"unfinished": "skip", "errored": "restart", "finished": "restart"}, ["t0", "t1", "t3"]),
        ({"unfinished": "restart"}, ["t2", "t3"]),
    ],
)
def test_the_wishes_say_which_trials_are_resumed(
    wishes: dict[str, Any], waiting: list[str]
) -> None:
    run = crashed()
    effects = run.resume(**wishes)
    assert [*launches(effects), *run.machine.placement.queue] == waiting


def test_a_restore_after_the_time_budget_begins_nothing_and_resumes_nothing() -> None:
    run = crashed(time_budget_s=5.0)
    assert run.machine.active_s > 5
    *commits, finish = run.resume(finished="restart", errored="resume", unfinished="resume")
    assert all(isinstance(effect, Commit) for effect in commits)
    assert finish == Finish(reason="budget", message="the time budget of 5 s is used up")
    statuses = [trial.status.value for trial in run.machine.trials.values()]
    assert statuses == ["TERMINATED", "ERROR", "PENDING", "PENDING"]


def test_a_restore_within_the_time_budget_continues() -> None:
    run = crashed(time_budget_s=1000.0)
    assert launches(run.resume()) == ["t2"]


def test_an_errored_trial_that_is_resumed_has_its_budget_and_its_checkpoints() -> None:
    run = crashed()
    run.resume(errored="resume")
    trial = run.trial("t1")
    assert (trial.failures, trial.error, len(trial.checkpoints)) == (0, None, 1)
    assert trial.resumed_from == 1


def test_a_trial_that_is_restarted_begins_without_its_checkpoints() -> None:
    run = crashed()
    (launch,) = [e for e in run.resume(errored="restart") if isinstance(e, Launch)]
    assert (launch.trial_id, launch.checkpoint) == ("t1", None)
    trial = run.trial("t1")
    assert (trial.iteration, trial.time_total_s, trial.row) == (0, 0.0, None)


def test_a_restarted_trial_does_not_reuse_the_names_of_its_checkpoints() -> None:
    run = crashed()
    run.resume(errored="restart")
    run.start("t1")
    run.report("t1", checkpoint=True)
    assert [checkpoint.index for checkpoint in run.trial("t1").checkpoints] == [1]


def test_a_retry_that_waited_has_kept_its_failures() -> None:
    run = Rehearsal(capacity={"CPU": 1}, failure=FailureConfig(max_failures=1))
    run.suggest()
    run.start("t0")
    run.fails("t0")
    run.crash()
    run.resume()
    run.start("t0")
    run.fails("t0")
    assert run.trial("t0").status is Status.ERROR


def test_a_smaller_machine_that_can_never_run_a_trial_ends_the_run_and_says_so() -> None:
    run = Rehearsal(capacity={"CPU": 8}, resources=None)
    run.suggest({"CPU": 4})
    run.crash()
    effects = run.resume(capacity={"CPU": 2})
    assert launches(effects) == []
    finish = effects[-1]
    assert isinstance(finish, Finish)
    assert finish.reason == "abort"
    assert "t0 requests {'CPU': 4}, but this machine has {'CPU': 2}" in finish.message


def test_a_checkpoint_that_is_found_again_is_where_the_attempt_begins() -> None:
    run = Rehearsal(
        capacity={"CPU": 1}, checkpoint=CheckpointConfig(checkpoint_score_attribute="loss")
    )
    run.suggest()
    run.start("t0")
    run.report("t0", {"loss": 0.5}, checkpoint=True)
    run.crash()
    run.resume()
    trial = run.trial("t0")
    found = replace(next_checkpoint(trial, trial.attempt, further=3), index=4)
    effects = run.handle(Saved(trial_id="t0", attempt=trial.attempt, checkpoint=found))
    assert effects == [Commit(trial_id="t0", checkpoint=found)]
    trial = run.trial("t0")
    assert (trial.status, trial.next_checkpoint) == (Status.STARTING, 5)
    assert (trial.iteration, trial.resumed_from, trial.time_total_s) == (4, 4, 2.0)
    # Its row is lost, and no other row has its score.
    assert (trial.row, trial.checkpoints[-1].score) == (None, None)
    run.crash()
    (launch,) = [effect for effect in run.resume() if isinstance(effect, Launch)]
    assert launch.checkpoint == found
