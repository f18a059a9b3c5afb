"""What a person orders while an experiment runs: stops, pauses, limits, more trials, notes."""

from collections.abc import Mapping
from typing import Any

import msgpack
import pytest

from holdfast.scheduler.codec import encode
from holdfast.scheduler.effects import (
    Effect,
    Finish,
    Halt,
    Launch,
    Release,
    Reply,
    Suggest,
    Warn,
)
from holdfast.scheduler.events import (
    ConfigAdded,
    ConfigRefused,
    EndOrdered,
    LimitChanged,
    NoteWritten,
    Order,
    PauseRequested,
    ResumeRequested,
    SamplesAdded,
    SearchEnded,
    SearchWaits,
    Suggested,
    TrialStopOrdered,
)
from holdfast.scheduler.machine import from_snapshot
from holdfast.scheduler.policies.asha import ASHAScheduler
from holdfast.scheduler.policies.hyperband import HyperBandScheduler
from holdfast.scheduler.policies.pbt import PopulationBasedTraining
from holdfast.scheduler.policy import TrialScheduler
from holdfast.scheduler.snapshot import snapshot
from holdfast.scheduler.steering import MOST_NOTE_CHARS, refusal
from holdfast.scheduler.verdict import Verdict
from holdfast.testing.lockstep import Lockstep
from holdfast.testing.rehearsal import Rehearsal, facts, trial_spec
from holdfast.trial.config import FailureConfig
from holdfast.trial.resources import NodeKind, PlacementGroupFactory
from holdfast.trial.trial import Status, StopReason

BY = "ann (page)"
ELASTIC = PlacementGroupFactory([{"CPU": 1}] * 3, least_bundles=2)


def running(count: int = 1, **given: Any) -> Rehearsal:
    run = Rehearsal(capacity={"CPU": float(count)}, **given)
    for index in range(count):
        run.suggest()
        run.start(f"t{index}")
    return run


def pause(trial_id: str, *, now: bool = False) -> PauseRequested:
    return PauseRequested(trial_id=trial_id, by=BY, now=now)


def resume(trial_id: str) -> ResumeRequested:
    return ResumeRequested(trial_id=trial_id, by=BY)


def stop(trial_id: str) -> TrialStopOrdered:
    return TrialStopOrdered(trial_id=trial_id, by=BY)


def launched(effects: list[Effect]) -> list[str]:
    return [effect.trial_id for effect in effects if isinstance(effect, Launch)]


def waits(run: Rehearsal) -> bool:
    return run.machine.waits_for_person


def is_complete(run: Rehearsal) -> bool:
    return run.machine.is_complete


def verdict(effects: list[Effect]) -> Verdict:
    (reply,) = [effect for effect in effects if isinstance(effect, Reply)]
    return reply.verdict


def paused(**given: Any) -> Rehearsal:
    """t0 has reported twice and was paused; the search has ended."""
    run = running(**given)
    run.handle(SearchEnded())
    run.report("t0", checkpoint=True)
    run.handle(pause("t0"))
    run.report("t0", checkpoint=True)
    run.ends("t0")
    return run


# -- stop -----------------------------------------------------------------------------------------


def test_a_running_trial_stops_and_says_who_stopped_it() -> None:
    run = running()
    run.report("t0", {"loss": 1.0})
    assert Halt(trial_id="t0", attempt=1) in run.handle(stop("t0"))
    assert run.trial("t0").status is Status.STOPPING
    run.ends("t0")
    trial = run.trial("t0")
    assert trial.status is Status.TERMINATED
    assert trial.stop is not None
    assert (trial.stop.reason, trial.stop.by) == (StopReason.USER, BY)
    assert trial.stop.why == "stopped by ann (page)"
    assert trial.stop.reason.is_early
    assert trial.row == {"loss": 1.0}


def test_a_trial_that_waits_ends_at_once_and_the_next_starts() -> None:
    run = running()
    run.suggest()  # t1 waits
    assert run.handle(stop("t1")) == []
    assert run.trial("t1").status is Status.TERMINATED
    assert not run.machine.placement.queue


def test_a_paused_trial_can_be_stopped_and_the_run_finishes() -> None:
    run = paused()
    assert run.handle(stop("t0")) == [Finish(reason="done")]
    assert run.trial("t0").status is Status.TERMINATED


def test_a_trial_that_waits_before_its_retry_can_be_stopped() -> None:
    run = running(failure=FailureConfig(max_failures=1, retry_wait_s=60))
    run.handle(SearchEnded())
    run.fails("t0")
    run.exits("t0")
    assert run.handle(stop("t0")) == [Finish(reason="done")]
    run.waited("t0")


def test_the_stop_of_a_trial_that_pauses_is_stronger_than_the_pause() -> None:
    run = running()
    run.handle(pause("t0"))
    run.handle(stop("t0"))
    run.ends("t0")
    assert run.trial("t0").status is Status.TERMINATED
    assert not run.trial("t0").is_held


# -- pause and resume -----------------------------------------------------------------------------


def test_a_trial_that_waits_does_not_start_until_it_is_resumed() -> None:
    run = running()
    run.suggest()
    run.handle(SearchEnded())
    run.handle(pause("t1"))
    assert run.trial("t1").shown_status is Status.PAUSED
    assert run.trial("t1").status is Status.PENDING
    assert launched(run.ends("t0")) == []
    assert not run.machine.finished
    assert waits(run)
    assert launched(run.handle(resume("t1"))) == ["t1"]


def test_a_running_trial_pauses_at_its_next_report_with_a_checkpoint() -> None:
    run = running()
    run.handle(SearchEnded())
    run.handle(pause("t0"))
    assert run.trial("t0").is_pausing
    assert verdict(run.report("t0")) is Verdict.CONTINUE
    assert verdict(run.report("t0", checkpoint=True)) is Verdict.PAUSE
    run.ends("t0")
    trial = run.trial("t0")
    assert (trial.status, trial.shown_status) == (Status.PENDING, Status.PAUSED)
    assert not run.machine.placement.holds
    (launch,) = run.handle(resume("t0"))
    assert isinstance(launch, Launch)
    assert launch.checkpoint is not None
    assert launch.checkpoint.iteration == 2


def test_a_trainable_that_saves_when_told_pauses_at_its_next_report() -> None:
    run = running(saves_when_told=True)
    run.handle(SearchEnded())
    run.handle(pause("t0"))
    assert verdict(run.report("t0")) is Verdict.PAUSE
    run.save("t0")
    run.ends("t0")
    assert run.machine.held == ["t0"]
    (launch,) = run.handle(resume("t0"))
    assert isinstance(launch, Launch)
    assert launch.checkpoint is not None
    assert launch.checkpoint.iteration == 1


def test_a_pause_that_has_not_happened_can_be_taken_back() -> None:
    run = running()
    run.handle(pause("t0"))
    run.handle(resume("t0"))
    assert verdict(run.report("t0", checkpoint=True)) is Verdict.CONTINUE


def test_a_trial_that_pauses_and_is_resumed_before_its_worker_has_ended_runs_on() -> None:
    run = running()
    run.handle(pause("t0"))
    run.report("t0", checkpoint=True)
    assert launched(run.handle(resume("t0"))) == []
    run.returns("t0")
    assert launched(run.exits("t0")) == ["t0"]


def test_a_pause_at_once_takes_the_worker_from_a_running_and_from_a_starting_trial() -> None:
    run = running(2)
    run.suggest()
    run.handle(SearchEnded())
    run.report("t0", checkpoint=True)
    run.report("t0")
    assert run.handle(pause("t0", now=True)) == [Halt(trial_id="t0", attempt=1)]
    assert launched(run.exits("t0")) == ["t2"]
    assert run.handle(pause("t2", now=True)) == [Halt(trial_id="t2", attempt=1)]
    assert run.exits("t2") == []
    assert run.machine.held == ["t0", "t2"]
    (launch,) = run.handle(resume("t0"))
    assert isinstance(launch, Launch)
    assert (launch.attempt, launch.checkpoint and launch.checkpoint.iteration) == (2, 1)


def test_a_pause_can_be_hurried() -> None:
    run = running()
    run.handle(pause("t0"))
    assert run.handle(pause("t0", now=True)) == [Halt(trial_id="t0", attempt=1)]


def test_a_pause_survives_a_failure_and_its_retry() -> None:
    run = running(failure=FailureConfig(max_failures=2, retry_wait_s=30))
    run.handle(SearchEnded())
    run.handle(pause("t0"))
    run.fails("t0")
    run.exits("t0")
    assert run.machine.held == []  # it still waits for its retry
    assert not waits(run)
    assert run.waited("t0") == []
    assert run.machine.held == ["t0"]
    assert launched(run.handle(resume("t0"))) == ["t0"]


def test_a_trial_that_ends_before_its_pause_has_ended() -> None:
    run = running()
    run.handle(SearchEnded())
    run.handle(pause("t0"))
    assert run.ends("t0") == [Finish(reason="done")]
    assert not run.trial("t0").is_held


def test_other_trials_run_while_one_is_paused() -> None:
    run = paused()
    assert waits(run)
    run = running(2)
    run.handle(pause("t0", now=True))
    run.exits("t0")
    run.suggest()
    assert run.trial("t2").status is Status.STARTING
    assert not waits(run)


def test_an_idle_worker_ends_when_only_paused_trials_are_left() -> None:
    run = running(reuse_actors=True)
    run.handle(SearchEnded())
    run.handle(pause("t0"))
    run.report("t0", checkpoint=True)
    assert run.returns("t0") == [Release(trial_id="t0", attempt=1)]
    run.exits("t0")
    assert waits(run)
    assert launched(run.handle(resume("t0"))) == ["t0"]


def test_a_reused_worker_is_not_kept_from_other_trials() -> None:
    run = running(reuse_actors=True)
    run.suggest()
    run.handle(pause("t0"))
    run.report("t0", checkpoint=True)
    (launch,) = [one for one in run.returns("t0") if isinstance(one, Launch)]
    assert (launch.trial_id, launch.reuse) == ("t1", "t0")


def test_an_elastic_trial_pauses_and_comes_back_with_what_is_free() -> None:
    run = Rehearsal(capacity={"CPU": 3}, resources=None)
    run.suggest(ELASTIC)
    run.start("t0")
    run.handle(pause("t0"))
    run.report("t0", checkpoint=True, has_room=True)
    run.ends("t0")
    assert run.machine.held == ["t0"]
    run.handle(resume("t0"))
    assert run.trial("t0").bundles == 3


def test_an_elastic_trial_that_loses_a_worker_while_it_pauses_waits() -> None:
    run = Rehearsal(capacity={"CPU": 3}, resources=None)
    run.suggest(ELASTIC)
    run.start("t0")
    run.handle(pause("t0"))
    run.fails("t0", kind="lost")
    assert launched(run.exits("t0")) == []
    assert run.machine.held == ["t0"]


def test_a_paused_trial_stays_paused_when_its_node_goes_and_another_joins() -> None:
    run = Rehearsal(capacity={}, offer=[NodeKind(name="k", resources={"CPU": 1})])
    run.joins("a", {"CPU": 1})
    run.suggest()
    run.start("t0")
    run.handle(SearchEnded())
    run.handle(pause("t0"))
    run.report("t0", checkpoint=True)
    run.ends("t0")
    run.leaves("a")
    assert launched(run.joins("b", {"CPU": 1})) == []
    assert run.machine.held == ["t0"]
    assert launched(run.handle(resume("t0"))) == []  # is the checkpoint in storage?
    assert launched(run.commit("t0", 0)) == ["t0"]


def test_the_end_of_the_run_by_its_budget_ends_paused_trials_that_have_begun() -> None:
    run = paused()
    assert run.handle(EndOrdered(reason="budget")) == [Finish(reason="budget")]
    assert run.trial("t0").status is Status.TERMINATED


def test_an_interrupt_leaves_paused_trials_paused_after_a_restore() -> None:
    run = paused()
    assert run.handle(EndOrdered(reason="interrupt")) == [Finish(reason="interrupt")]
    run.crash()
    assert launched(run.resume()) == []
    assert waits(run)
    assert launched(run.handle(resume("t0"))) == ["t0"]


def test_a_pause_that_had_not_happened_before_a_crash_holds_after_it() -> None:
    run = running()
    run.report("t0", checkpoint=True)
    run.handle(pause("t0"))
    run.crash()
    effects = run.resume()
    assert launched(effects) == []
    assert run.machine.held == ["t0"]


def test_a_crash_between_the_pause_and_the_exit_of_the_worker_changes_nothing() -> None:
    run = running()
    run.handle(SearchEnded())
    run.handle(pause("t0"))
    run.report("t0", checkpoint=True)
    run.crash()
    assert launched(run.resume()) == []
    assert run.machine.held == ["t0"]


def test_the_run_does_not_wait_for_a_paused_trial_that_a_restore_skips() -> None:
    run = paused()
    run.crash()
    assert Finish(reason="done") in run.resume(unfinished="skip")
    assert run.trial("t0").is_held


def test_the_pause_of_a_trial_that_a_restore_skips_keeps_no_run_waiting() -> None:
    run = running(2)
    run.handle(SearchEnded())
    run.crash()
    run.resume(unfinished="skip", finished="skip")
    assert run.machine.finished
    run = running(2)
    run.report("t0", checkpoint=True)
    run.crash()
    run.resume(unfinished="skip")
    run.handle(pause("t0"))
    assert run.machine.held == []
    assert run.handle(SearchEnded()) == [Finish(reason="done")]


def test_a_search_that_waits_waits_with_the_run_for_a_person() -> None:
    run = running()
    run.handle(pause("t0"))
    run.report("t0", checkpoint=True)
    run.ends("t0")
    assert run.machine.asking
    assert not waits(run)  # the search is asked
    assert run.handle(SearchWaits()) == []
    assert waits(run)
    assert launched(run.handle(resume("t0"))) == ["t0"]


# -- with schedulers ------------------------------------------------------------------------------


def life(index: int, iteration: int) -> Mapping[str, Any] | None:
    return {"loss": index + 1 / iteration} if iteration <= 9 else None


POLICIES = [
    ASHAScheduler(metric="loss", mode="min", max_t=9, grace_period=1),
    HyperBandScheduler(metric="loss", mode="min", max_t=9),
    PopulationBasedTraining(
        metric="loss",
        mode="min",
        perturbation_interval=2,
        hyperparam_mutations={"lr": [0.1, 0.2]},
        synch=True,
    ),
    PopulationBasedTraining(
        metric="loss", mode="min", perturbation_interval=2, hyperparam_mutations={"lr": [0.1, 0.2]}
    ),
]


class Paused(Lockstep):
    """A person pauses a trial at its third report, and resumes it when nothing else is left."""

    was_paused = False
    has_waited = False

    def _go_on(self, trial_id: str) -> list[Effect]:
        effects = super()._go_on(trial_id)
        if trial_id == "t0" and not self.was_paused and self.run.trial("t0").iteration == 1:
            self.was_paused = True
            if not self.run.trial("t0").status.is_final:
                effects += self.run.handle(pause("t0"))
        return effects

    def to_the_end(self) -> Lockstep:
        try:
            return super().to_the_end()
        except AssertionError:
            if not self.run.machine.waits_for_person:
                raise
        self.has_waited = True
        self._to_do.extend(self.run.handle(resume("t0")))
        return super().to_the_end()


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
@pytest.mark.parametrize("capacity", [1, 5])
@pytest.mark.parametrize("crashes", [(), (12, 25, 40)])
def test_a_scheduler_gets_on_without_a_paused_trial_and_it_ends_well_after_all(
    policy: TrialScheduler, capacity: int, crashes: tuple[int, ...]
) -> None:
    study = Paused(
        policy, life, trials=5, capacity={"CPU": float(capacity)}, crashes=crashes, num_samples=5
    )
    study.to_the_end()
    assert study.was_paused
    assert all(trial.status is Status.TERMINATED for trial in study.trials)
    assert study.has_waited, "it was not the last to end"


def test_a_trial_that_the_scheduler_has_paused_can_be_paused_and_then_waits_for_both() -> None:
    policy = HyperBandScheduler(metric="loss", mode="min", max_t=9)
    run = Rehearsal(capacity={"CPU": 2}, policy=policy, scheduler="HyperBandScheduler")
    run.suggest()
    run.suggest()
    run.handle(SearchEnded())
    run.start("t0", "t1")
    run.report("t0", {"loss": 1.0}, checkpoint=True)
    run.ends("t0")
    assert run.trial("t0").status is Status.PAUSED
    assert "paused by HyperBandScheduler, which resumes it" in refusal(run.machine, resume("t0"))
    run.handle(pause("t0"))
    assert run.trial("t0").shown_status is Status.PAUSED
    run.report("t1", {"loss": 2.0}, checkpoint=True)
    run.ends("t1")
    assert run.machine.held == ["t0"]  # the scheduler has promoted it
    assert run.trial("t1").status is Status.TERMINATED
    assert launched(run.handle(resume("t0"))) == ["t0"]


# -- the limit ------------------------------------------------------------------------------------


def test_a_higher_limit_starts_trials_and_a_lower_one_stops_none() -> None:
    run = Rehearsal(capacity={"CPU": 8}, max_concurrent=1)
    run.suggest()
    run.start("t0")
    assert not run.machine.asking
    effects = run.handle(LimitChanged(max_concurrent=3, by=BY))
    assert effects == [Suggest(index=1)]
    run.suggest()
    run.suggest()
    assert len(run.machine.placement.holds) == 3
    assert run.handle(LimitChanged(max_concurrent=1, by=BY)) == []
    assert len(run.machine.placement.holds) == 3
    run.ends("t0")
    assert len(run.machine.placement.holds) == 2
    assert run.machine.spec.options["said"] == {"max_concurrent": 1}
    assert run.handle(LimitChanged(max_concurrent=None, by=BY))
    assert run.machine.spec.max_concurrent is None


# -- more trials ----------------------------------------------------------------------------------


def test_more_samples_open_the_search_again() -> None:
    run = running(num_samples=1)
    run.handle(SearchEnded())
    assert is_complete(run)
    run.handle(SamplesAdded(count=2, by=BY, total=3))
    spec = run.machine.spec
    assert (spec.num_samples, spec.options) == (3, {"said": {"num_samples": 1}, "trials": 3})
    assert not is_complete(run)
    assert not run.machine.search_ended
    assert run.ends("t0") == [Suggest(index=1)]


def test_more_samples_after_the_end_are_refused() -> None:
    run = running(num_samples=1)
    run.handle(SearchEnded())
    run.ends("t0")
    order = SamplesAdded(count=2, by=BY)
    assert refusal(run.machine, order) == "the run has finished"
    assert run.handle(order) == []
    assert run.machine.spec.num_samples == 1


# -- added configs --------------------------------------------------------------------------------


def added(lr: float = 0.5) -> ConfigAdded:
    return ConfigAdded(config={"lr": lr}, by=BY)


def test_an_added_config_becomes_a_trial_that_starts_before_those_that_wait() -> None:
    run = running()
    run.suggest()
    assert run.handle(added()) == [Suggest(index=2, config={"lr": 0.5})]
    run.suggest(is_added=True)
    assert list(run.machine.placement.queue) == ["t2", "t1"]
    assert launched(run.ends("t0")) == ["t2"]


def test_several_added_configs_are_asked_for_one_after_the_other() -> None:
    run = running()
    run.handle(added(0.1))
    assert run.handle(added(0.2)) == []
    effects = run.suggest(is_added=True)
    assert Suggest(index=2, config={"lr": 0.2}) in effects
    run.suggest(is_added=True)
    assert run.machine.configs == ()


def test_an_added_config_runs_after_the_search_has_ended_and_while_it_waits() -> None:
    run = running()
    run.handle(SearchEnded())
    run.handle(added())
    assert not run.machine.finished
    run.ends("t0")
    assert not run.machine.finished
    assert launched(run.suggest(is_added=True)) == ["t1"]
    assert run.machine.search_ended
    run.start("t1")
    assert run.ends("t1") == [Finish(reason="done")]

    run = running()
    run.ends("t0")
    run.handle(SearchWaits())
    run.handle(added())
    assert launched(run.suggest(is_added=True)) == ["t1"]
    assert run.machine.asking
    assert run.machine.search_waits


def test_an_added_config_that_makes_no_trial_is_a_warning() -> None:
    run = running()
    run.handle(SearchEnded())
    run.handle(added())
    run.ends("t0")
    warning, finish = run.handle(ConfigRefused(why="ValueError: too large"))
    assert warning == Warn(
        text="The added config {'lr': 0.5} makes no trial: ValueError: too large"
    )
    assert finish == Finish(reason="done")


def test_an_added_config_survives_a_crash_and_the_end_of_the_run() -> None:
    run = running()
    run.handle(added())
    run.crash()
    assert Suggest(index=1, config={"lr": 0.5}) in run.resume()
    run.crash()
    run.resume()
    run.handle(EndOrdered(reason="interrupt"))
    run.exits("t0")
    run.crash()
    assert Suggest(index=1, config={"lr": 0.5}) in run.resume()


# -- notes ----------------------------------------------------------------------------------------


def test_a_note_replaces_the_former_one_also_after_the_trial_has_ended() -> None:
    run = running()
    run.handle(NoteWritten(trial_id="t0", text="odd", by=BY))
    run.ends("t0")
    run.handle(NoteWritten(trial_id="t0", text="its data was wrong", by=BY))
    assert run.trial("t0").note == "its data was wrong"
    run.crash()
    run.resume()
    assert run.trial("t0").note == "its data was wrong"
    run.handle(NoteWritten(trial_id="t0", text="", by=BY))
    assert run.trial("t0").note == ""


# -- orders that do not apply ---------------------------------------------------------------------


def in_status(status: Status) -> Rehearsal:
    run = Rehearsal(capacity={"CPU": 1}, scheduler="ASHA")
    run.suggest()
    if status is Status.PENDING:
        run.suggest()
        run.handle(stop("t0"))
    elif status is not Status.STARTING:
        run.start("t0")
    match status:
        case Status.STOPPING:
            run.handle(stop("t0"))
        case Status.TERMINATED:
            run.ends("t0")
        case Status.ERROR:
            run.fails("t0")
        case _:
            pass
    return run


@pytest.mark.parametrize(
    ("status", "order", "text"),
    [
        (Status.TERMINATED, stop("t0"), "trial t0 has ended: TERMINATED"),
        (Status.ERROR, stop("t0"), "trial t0 has ended: ERROR"),
        (Status.STOPPING, stop("t0"), "trial t0 is stopping already"),
        (Status.TERMINATED, pause("t0"), "trial t0 has ended: TERMINATED"),
        (Status.STOPPING, pause("t0"), "trial t0 is stopping already"),
        (Status.RUNNING, resume("t0"), "trial t0 is not paused: RUNNING"),
        (Status.STARTING, resume("t0"), "trial t0 is not paused: STARTING"),
        (Status.PENDING, resume("t1"), "trial t1 is not paused: PENDING"),
        (Status.ERROR, resume("t0"), "trial t0 has ended: ERROR"),
        (Status.RUNNING, stop("t9"), "there is no trial 't9'"),
        (
            Status.RUNNING,
            NoteWritten(trial_id="t0", text="x" * (MOST_NOTE_CHARS + 1), by=BY),
            "a note has at most 10,000 characters",
        ),
        (
            Status.RUNNING,
            LimitChanged(max_concurrent=0, by=BY),
            "max_concurrent_trials must be at least 1",
        ),
        (
            Status.RUNNING,
            SamplesAdded(count=0, by=BY),
            "the number of trials to add must be at least 1",
        ),
    ],
)
def test_an_order_that_does_not_apply_is_refused_in_a_sentence_and_changes_nothing(
    status: Status, order: Order, text: str
) -> None:
    run = in_status(status)
    assert refusal(run.machine, order) == text
    before = facts(run.machine)
    assert run.handle(order, after_s=0) == []
    assert facts(run.machine) == before


def test_a_trial_that_is_paused_cannot_be_paused_again() -> None:
    run = paused()
    assert refusal(run.machine, pause("t0")) == "trial t0 is paused already"
    assert refusal(run.machine, pause("t0", now=True)) == "trial t0 is paused already"


def test_samples_of_a_search_without_a_limit_cannot_be_added() -> None:
    run = running(num_samples=-1)
    assert "no limit" in refusal(run.machine, SamplesAdded(count=1, by=BY))


def test_a_trainers_experiment_has_one_trial() -> None:
    run = running(options={"trainer": "TorchTrainer"})
    for order in (SamplesAdded(count=1, by=BY), added()):
        assert "one trial" in refusal(run.machine, order)


# -- what is kept ---------------------------------------------------------------------------------


def test_a_snapshot_has_what_a_person_has_ordered() -> None:
    run = paused()
    run.handle(NoteWritten(trial_id="t0", text="look", by=BY))
    run.handle(added())
    plain = msgpack.unpackb(msgpack.packb(snapshot(run.machine)), strict_map_key=False)
    machine = from_snapshot(plain)
    assert facts(machine) == facts(run.machine)
    assert machine.trials["t0"].note == "look"
    assert machine.held == ["t0"]


def test_records_without_such_orders_are_as_older_versions_wrote_them() -> None:
    plain = encode(Suggested(spec=trial_spec(0)), 1.0)[2]
    assert "is_added" not in plain["spec"]
    run = running()
    trial = snapshot(run.machine)["trials"][0]
    assert not {"is_held", "note"} & trial.keys()
    assert not {"held", "configs", "asking_config"} & snapshot(run.machine).keys()
