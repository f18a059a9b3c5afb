"""What schedulers can do with running trials besides stopping them: clone, change, save, ask."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.scheduler.effects import (
    AskScheduler,
    Discard,
    Effect,
    Finish,
    Halt,
    Launch,
    Reply,
    Verdict,
    Warn,
)
from holdfast.scheduler.events import EndOrdered, SchedulerAnswered, SearchEnded, SearchWaits
from holdfast.scheduler.policy import (
    Abort,
    AskUser,
    ChangeTrial,
    CloneTrial,
    Decision,
    Observation,
    PauseTrial,
    SaveTrial,
    StopTrial,
    Tell,
    TrialAdded,
    TrialReported,
    TrialScheduler,
    UserAnswered,
    View,
)
from holdfast.testing.rehearsal import Rehearsal
from holdfast.trial.config import CheckpointConfig, FailureConfig
from holdfast.trial.events import Saved
from holdfast.trial.resources import PlacementGroupFactory
from holdfast.trial.trial import Status

BETTER = {"lr": 0.1}


class Scripted(TrialScheduler):
    """Decides `script[n]` at observation number n of the kind that it waits for."""

    def __init__(self, *script: Sequence[Decision], on: type = TrialReported) -> None:
        self._script, self._on = list(script), on
        self.seen: list[Observation] = []

    def decide(self, view: View, event: Observation) -> Sequence[Decision]:
        self.seen.append(event)
        if isinstance(event, self._on) and self._script:
            return self._script.pop(0)
        return ()


def running(policy: TrialScheduler, count: int = 2, **spec: Any) -> Rehearsal:
    run = Rehearsal(capacity={"CPU": float(count)}, policy=policy, scheduler="Scripted", **spec)
    for index in range(count):
        run.suggest()
        run.start(f"t{index}")
    run.handle(SearchEnded())
    return run


def of(kind: type, effects: list[Effect]) -> list[Any]:
    return [effect for effect in effects if type(effect) is kind]


def cloned(**spec: Any) -> Rehearsal:
    """t1 has made two checkpoints, and t0 is to resume from the newest."""
    run = running(
        Scripted([], [], [CloneTrial(trial_id="t0", source="t1", config=BETTER)]), **spec
    )
    for _ in range(2):
        run.report("t1", {"loss": 0.5}, checkpoint=True)
    assert run.report("t0", {"loss": 0.9}) == [
        Reply(trial_id="t0", attempt=1, verdict=Verdict.STOP)
    ]
    return run


def test_what_a_clone_begins_from_stays_until_the_clone_has_its_copy() -> None:
    run = cloned(checkpoint=CheckpointConfig(num_to_keep=1))
    run.commit("t1", 0)
    run.commit("t1", 1)
    run.report("t1", {"loss": 0.4}, checkpoint=True)
    assert of(Discard, run.commit("t1", 2)) == []
    run.ends("t0")
    (discard,) = of(Discard, run.adopt("t0"))
    assert (discard.trial_id, discard.checkpoint.index) == ("t1", 1)


def test_what_was_kept_for_a_clone_goes_when_the_clone_is_stopped_or_takes_another() -> None:
    for decided in (
        StopTrial(trial_id="t0"),
        CloneTrial(trial_id="t0", source="t1", config=BETTER),
    ):
        run = running(
            Scripted([], [CloneTrial(trial_id="t0", source="t1", config=BETTER)], [], [decided]),
            checkpoint=CheckpointConfig(num_to_keep=1),
        )
        run.report("t1", checkpoint=True)
        run.commit("t1", 0)
        run.report("t0")
        run.report("t1", checkpoint=True)
        assert of(Discard, run.commit("t1", 1)) == []
        (discard,) = of(Discard, run.report("t1"))
        assert (discard.trial_id, discard.checkpoint.index) == ("t1", 0)


def test_what_was_kept_for_a_clone_goes_when_the_clone_has_failed_for_good() -> None:
    run = cloned(checkpoint=CheckpointConfig(num_to_keep=1))
    run.ends("t0")
    run.commit("t1", 0)
    run.commit("t1", 1)
    run.report("t1", checkpoint=True)
    assert of(Discard, run.commit("t1", 2)) == []
    (discard,) = of(Discard, run.fails("t0"))
    assert (discard.trial_id, discard.checkpoint.index) == ("t1", 1)


def test_what_a_clone_begins_from_stays_where_a_restore_lets_its_source_start_again() -> None:
    run = cloned()
    run.ends("t1")
    run.crash()
    effects = run.resume(finished="restart")
    (origin,) = [launch.origin for launch in of(Launch, effects) if launch.trial_id == "t0"]
    assert (run.trial("t1").checkpoints, origin.checkpoint.index) == ((), 1)
    assert run.machine.kept_of("t1") == {1}
    run.adopt("t0")
    assert run.machine.kept_of("t1") == set()


def test_a_clone_that_cannot_have_its_copy_resumes_from_its_own_checkpoint() -> None:
    run = running(
        Scripted([], [], [CloneTrial(trial_id="t0", source="t1", config=BETTER)]),
        checkpoint=CheckpointConfig(num_to_keep=1),
    )
    run.report("t0", checkpoint=True)
    run.report("t1", checkpoint=True)
    run.report("t0")
    run.ends("t0")
    run.fails("t0", kind="checkpoint")
    (launch,) = of(Launch, run.exits("t0"))
    assert (launch.origin, launch.checkpoint.iteration) == (None, 1)
    assert run.trial("t0").failures == 0
    assert run.machine.clones == {}


def test_a_checkpoint_that_a_clones_old_worker_still_makes_does_not_count() -> None:
    run = cloned(saves_when_told=True)
    assert run.save("t0") == []
    assert run.trial("t0").checkpoints == ()


def test_a_clone_of_a_trial_without_checkpoints_ends_the_run_and_says_what_to_do() -> None:
    run = running(Scripted([CloneTrial(trial_id="t0", source="t1", config=BETTER)]))
    run.report("t0", {"loss": 1.0})
    assert run.machine.ending is not None
    assert "train_t1 has reported none in 0 iterations" in run.machine.ending.message


def test_a_pause_without_a_checkpoint_ends_the_run_instead_of_training_again() -> None:
    run = running(Scripted([PauseTrial(trial_id="t0")]))
    assert Halt(trial_id="t0", attempt=1) in run.report("t0", {"loss": 1.0})
    assert run.machine.ending is not None
    assert run.machine.ending.message.startswith("Scripted resumes trials from checkpoints")


def test_a_checkpoint_for_a_pause_goes_when_the_trial_has_ended_meanwhile() -> None:
    pause, stop = PauseTrial(trial_id="t0"), StopTrial(trial_id="t0", why="it is the worst")
    run = running(Scripted([pause], [stop]), saves_when_told=True)
    run.report("t0", {"loss": 1.0}, checkpoint=True)
    run.report("t1", {"loss": 0.0})
    assert run.trial("t0").status is Status.TERMINATED
    (discard,) = run.save("t0")
    assert isinstance(discard, Discard)
    assert (discard.trial_id, discard.checkpoint.index) == ("t0", 1)
    assert [known.index for known in run.trial("t0").checkpoints] == [0]
    # Neither one of an earlier attempt nor one that a record has had.
    assert run.save("t0", attempt=0) == []
    again = replace(discard.checkpoint, index=0)
    assert run.handle(Saved(trial_id="t0", attempt=1, checkpoint=again)) == []


def test_a_change_to_resources_that_there_are_not_ends_the_run() -> None:
    run = running(
        Scripted([ChangeTrial(trial_id="t0", resources=PlacementGroupFactory([{"CPU": 9}]))])
    )
    run.report("t0", checkpoint=True)
    assert run.machine.ending is not None
    assert "requests {'CPU': 9" in run.machine.ending.message


def saving_while_asked(**spec: Any) -> Rehearsal:
    """The report of t0 must be answered with an order to save, once the user has answered."""
    ask = AskUser(trial_id="t0", question={})
    policy = Scripted([SaveTrial(trial_id="t0"), ask])
    run = running(policy, saves_when_told=True, **spec)
    assert of(Reply, run.report("t0")) == []
    return run


def test_a_save_goes_with_the_attempt_that_it_was_for() -> None:
    run = saving_while_asked(failure=FailureConfig(max_failures=1))
    run.exits("t0")
    run.handle(SchedulerAnswered(trial_id="t0", answer={}))
    run.start("t0")
    (reply,) = of(Reply, run.report("t0"))
    assert reply.verdict is Verdict.CONTINUE


class Asking(TrialScheduler):
    """Asks about each report, and stops the trial if the answer says so."""

    def decide(self, view: View, event: Observation) -> Sequence[Decision]:
        match event:
            case TrialReported():
                return [AskUser(trial_id=event.trial_id, question={"config": {"lr": 1.0}})]
            case UserAnswered():
                return [StopTrial(trial_id=event.trial_id)] if event.answer["stop"] else []
            case _:
                return ()


def answered(run: Rehearsal, answer: Mapping[str, Any]) -> list[Effect]:
    return run.handle(SchedulerAnswered(trial_id="t0", answer=answer))


def test_what_was_asked_and_not_answered_before_a_crash_is_asked_again() -> None:
    run = running(Asking())
    run.report("t0")
    run.crash()
    effects = run.resume()
    assert of(AskScheduler, effects) != []
    assert [launch.trial_id for launch in of(Launch, effects)] == ["t1"]
    assert [launch.trial_id for launch in of(Launch, answered(run, {"stop": False}))] == ["t0"]
    assert run.machine.questions == {}


def test_nothing_is_asked_once_the_run_is_over_and_a_restore_asks() -> None:
    """The search has answered late."""
    run = Rehearsal(capacity={"CPU": 1}, policy=Completing(), scheduler="Completing")
    run.handle(EndOrdered(reason="interrupt"))
    assert of(AskScheduler, run.suggest()) == []
    assert of(AskScheduler, run.resume()) != []


class Completing(TrialScheduler):
    """Asks the user for the config of each new trial."""

    def decide(self, view: View, event: Observation) -> Sequence[Decision]:
        match event:
            case TrialAdded():
                return [AskUser(trial_id=event.trial_id, question={"config": {}})]
            case UserAnswered():
                return [ChangeTrial(trial_id=event.trial_id, config=event.answer["config"])]
            case _:
                return ()


def test_a_new_trial_waits_for_what_the_user_says_of_its_config_and_begins_with_that() -> None:
    run = Rehearsal(capacity={"CPU": 2}, policy=Completing(), scheduler="Completing")
    assert of(Launch, run.suggest()) == []
    assert of(Finish, run.handle(SearchEnded())) == []
    (launch,) = of(Launch, answered(run, {"config": BETTER}))
    assert (launch.trial_id, run.trial("t0").config) == ("t0", BETTER)
    assert run.trial("t0").spec.config == BETTER
    run.start("t0")
    run.ends("t0")
    run.resume(finished="restart")
    assert run.trial("t0").config == BETTER


def test_an_answer_about_a_worker_that_is_gone_answers_no_report() -> None:
    run = running(Asking())
    run.report("t0")
    run.exits("t0", "was killed")
    assert of(Reply, answered(run, {"stop": False})) == []


def test_a_search_that_waits_for_paused_trials_does_not_wait_for_ever() -> None:
    run = Rehearsal(
        capacity={"CPU": 1}, policy=Scripted([PauseTrial(trial_id="t0")]), scheduler="Scripted"
    )
    run.suggest()
    run.start("t0")
    run.report("t0", checkpoint=True)
    run.handle(SearchWaits())
    (launch,) = of(Launch, run.ends("t0"))
    assert launch.trial_id == "t0"


def test_a_scheduler_can_warn_and_can_end_the_run() -> None:
    run = running(Scripted([Tell(text="look out"), Abort(message="no such metric")]))
    effects = run.report("t0")
    assert of(Warn, effects) == [Warn(text="look out")]
    run.exits("t0")
    assert of(Finish, run.exits("t1")) == [Finish(reason="abort", message="no such metric")]
