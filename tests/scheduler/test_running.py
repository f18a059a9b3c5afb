"""Trials come from the search, wait for resources, run and end: events in, effects out."""

from typing import get_args

import pytest

from holdfast.scheduler.effects import Effect, Finish, Launch, Reply, Suggest, Verdict
from holdfast.scheduler.events import CheckpointLost, Event, SearchEnded
from holdfast.scheduler.machine import _HANDLERS
from holdfast.testing.rehearsal import Rehearsal
from holdfast.trial.config import FailureConfig
from holdfast.trial.errors import InvalidTransition
from holdfast.trial.events import Started
from holdfast.trial.resources import Allocation, PlacementGroupFactory
from holdfast.trial.trial import Status


def launched(effects: list[Effect]) -> list[str]:
    return [effect.trial_id for effect in effects if isinstance(effect, Launch)]


def one_cpu(trial_id: str, attempt: int = 1) -> Launch:
    return Launch(
        trial_id=trial_id,
        attempt=attempt,
        allocation=Allocation(amounts={"CPU": 1}),
        checkpoint=None,
    )


def go_on(trial_id: str) -> Reply:
    return Reply(trial_id=trial_id, attempt=1, verdict=Verdict.CONTINUE)


def test_a_run_of_one_trial_from_its_beginning_to_its_end() -> None:
    run = Rehearsal(capacity={"CPU": 1})
    assert run.began == [Suggest(index=0)]
    assert run.suggest() == [one_cpu("t0")]
    assert run.start("t0") == []
    assert run.report("t0", {"loss": 1.0}) == [go_on("t0")]
    assert run.returns("t0") == []
    assert run.exits("t0") == [Suggest(index=1)]
    assert run.handle(SearchEnded()) == [Finish(reason="done")]
    assert run.trial("t0").status is Status.TERMINATED
    assert run.trial("t0").iteration == 1


def test_trials_start_in_the_order_in_which_they_were_suggested() -> None:
    run = Rehearsal(capacity={"CPU": 2})
    assert run.suggest() == [one_cpu("t0"), Suggest(index=1)]
    assert run.suggest() == [one_cpu("t1")]
    run.start("t0", "t1")
    assert run.ends("t1") == [Suggest(index=2)]
    assert run.suggest() == [one_cpu("t2")]


def test_the_search_is_asked_only_while_there_is_room_and_one_question_at_a_time() -> None:
    run = Rehearsal(capacity={"CPU": 3})
    questions = [run.began, run.suggest(), run.suggest(), run.suggest()]
    assert [effects.count(Suggest(index=i)) for i, effects in enumerate(questions)] == [1, 1, 1, 0]


def test_a_trial_waits_until_a_worker_is_gone_not_only_done() -> None:
    run = Rehearsal(capacity={"CPU": 1})
    run.suggest()
    run.start("t0")
    assert run.returns("t0") == []
    assert run.exits("t0") == [Suggest(index=1)]


def test_the_first_that_waits_keeps_those_behind_it_waiting() -> None:
    run = Rehearsal(capacity={"CPU": 4}, resources=None)
    run.suggest({"CPU": 3})
    assert launched(run.suggest({"CPU": 2})) == []
    run.start("t0")
    assert run.report("t0") == [go_on("t0")]
    assert launched(run.ends("t0")) == ["t1"]


def test_no_more_trials_run_than_max_concurrent_allows() -> None:
    run = Rehearsal(capacity={"CPU": 8}, max_concurrent=2)
    run.suggest()
    assert run.suggest() == [one_cpu("t1")]
    run.start("t0", "t1")
    run.returns("t0")
    assert run.exits("t0") == [Suggest(index=2)]


def test_four_trials_share_one_gpu_in_quarters_and_the_fifth_waits() -> None:
    quarter = PlacementGroupFactory([{"GPU": 0.25}])
    run = Rehearsal(capacity={"CPU": 8, "GPU": 2}, resources=quarter)
    launches = [run.suggest(quarter)[0] for _ in range(5)]
    gpus = [effect.allocation.gpus for effect in launches if isinstance(effect, Launch)]
    assert gpus == [(0,), (0,), (0,), (0,), (1,)]


def test_a_trial_of_two_gpus_gets_whole_ones() -> None:
    run = Rehearsal(capacity={"GPU": 3}, resources=None)
    run.suggest({"GPU": 0.5})
    (launch, *_) = run.suggest({"GPU": 2})
    assert isinstance(launch, Launch)
    assert launch.allocation == Allocation(amounts={"GPU": 2}, gpus=(1, 2))
    assert launched(run.suggest({"GPU": 1})) == []


def test_custom_resources_are_counted() -> None:
    run = Rehearsal(capacity={"CPU": 8, "licence": 1}, resources=None)
    assert launched(run.suggest({"licence": 1})) == ["t0"]
    assert launched(run.suggest({"licence": 1})) == []
    run.start("t0")
    assert launched(run.ends("t0")) == ["t1"]


def test_a_request_that_can_never_be_met_ends_the_run_and_names_it() -> None:
    run = Rehearsal(capacity={"CPU": 2}, resources=None)
    (finish,) = run.suggest({"CPU": 3})
    assert isinstance(finish, Finish)
    assert finish.reason == "abort"
    assert "t0" in finish.message
    assert "{'CPU': 3}" in finish.message
    assert "{'CPU': 2}" in finish.message


def test_an_impossible_request_lets_running_trials_be_resumed_later() -> None:
    run = Rehearsal(capacity={"CPU": 2}, resources=None)
    run.suggest()
    run.start("t0")
    run.suggest({"CPU": 3})
    assert run.trial("t0").status is Status.PENDING
    assert [type(effect) for effect in run.ends("t0")] == [Finish]


def test_a_search_that_ends_before_the_last_trial_lets_it_finish() -> None:
    run = Rehearsal()
    run.suggest()
    assert run.handle(SearchEnded()) == []
    run.start("t0")
    assert run.ends("t0") == [Finish(reason="done")]


def test_a_search_without_any_trial_ends_the_run() -> None:
    run = Rehearsal()
    assert run.handle(SearchEnded()) == [Finish(reason="done")]


def test_a_run_that_is_finished_does_nothing_more() -> None:
    run = Rehearsal()
    run.suggest()
    run.start("t0")
    run.handle(SearchEnded())
    run.report("t0", checkpoint=True)
    run.ends("t0")
    assert run.machine.finished
    assert run.commit("t0", 0) == []
    assert run.trial("t0").checkpoints[0].committed
    assert run.exits("t0") == []


def test_what_an_attempt_says_that_was_given_up_changes_nothing() -> None:
    run = Rehearsal(capacity={"CPU": 1}, failure=FailureConfig(max_failures=3))
    run.suggest()
    run.start("t0")
    run.fails("t0")
    run.exits("t0")
    assert run.trial("t0").attempt == 2
    before = run.machine.trials["t0"]
    assert run.report("t0", {"loss": 0.0}, attempt=1) == []
    assert run.save("t0", attempt=1) == []
    assert run.returns("t0", attempt=1) == []
    assert run.fails("t0", attempt=1) == []
    assert run.exits("t0", attempt=1) == []
    assert run.machine.trials["t0"] is before


def test_a_metric_that_the_first_report_lacks_ends_the_run_and_lists_what_was_reported() -> None:
    run = Rehearsal(metric="accuracy")
    run.suggest()
    run.start("t0")
    run.report("t0", {"loss": 1.0, "acc": 0.5})
    finish = run.exits("t0")[-1]
    assert isinstance(finish, Finish)
    assert finish.reason == "abort"
    assert "'accuracy'" in finish.message
    assert finish.message.endswith("Reported: acc, loss")


def test_a_metric_that_was_missing_is_asked_for_again_after_a_restore() -> None:
    run = Rehearsal(metric="accuracy", capacity={"CPU": 1})
    run.suggest()
    run.start("t0")
    run.report("t0", {"loss": 1.0})
    run.exits("t0")
    run.crash()
    run.resume()
    run.start("t0")
    run.report("t0", {"loss": 1.0})
    assert run.machine.ending is not None
    assert run.machine.ending.reason == "abort"


@pytest.mark.parametrize("name", ["eval/accuracy", "training_iteration", "time_total_s"])
def test_a_metric_may_be_nested_or_counted_by_us(name: str) -> None:
    run = Rehearsal(metric=name)
    run.suggest()
    run.start("t0")
    assert run.report("t0", {"eval": {"accuracy": 1.0}})[-1] == go_on("t0")


def test_a_metric_that_is_missing_may_be_let_pass() -> None:
    run = Rehearsal(metric="accuracy", strict_metric=False)
    run.suggest()
    run.start("t0")
    assert run.report("t0", {"loss": 1.0})[-1] == go_on("t0")


def test_later_reports_may_lack_the_metric() -> None:
    run = Rehearsal(metric="accuracy")
    run.suggest()
    run.start("t0")
    run.report("t0", {"accuracy": 1.0})
    assert run.report("t0", {"loss": 1.0})[-1] == go_on("t0")


def test_time_counts_only_while_the_experiment_is_alive() -> None:
    run = Rehearsal(capacity={"CPU": 1})
    run.suggest()
    run.start("t0")
    assert run.machine.active_s == 2
    run.crash()
    run.resume()
    assert run.machine.active_s == 2
    run.start("t0")
    assert run.machine.active_s == 3


def test_what_a_restore_finds_lost_before_it_resumes_counts_no_time() -> None:
    run = Rehearsal(capacity={"CPU": 1})
    run.suggest()
    run.start("t0")
    before = run.machine.active_s
    run.handle(CheckpointLost(trial_id="t0", index=0, reason="its folder is gone"), after_s=3600)
    run.resume()
    assert run.machine.active_s == before


def test_a_clock_that_is_set_back_counts_as_no_time() -> None:
    run = Rehearsal()
    run.now -= 100
    run.suggest()
    assert run.machine.active_s == 0


def test_an_event_that_cannot_be_tells_the_story_of_its_trial() -> None:
    run = Rehearsal()
    run.suggest()
    with pytest.raises(InvalidTransition, match=r"trial t0 \(STARTING, attempt 1, iteration 0"):
        run.report("t0")


def test_a_worker_that_took_the_place_of_an_unfit_one_is_the_one_that_is_known() -> None:
    run = Rehearsal()
    run.suggest()
    run.start("t0")
    second = Started(trial_id="t0", attempt=1, pid=77, hostname="host", node_ip="127.0.0.1")
    assert run.handle(second) == []
    assert run.trial("t0").place.pid == 77
    assert run.trial("t0").status is Status.RUNNING


def test_the_machine_handles_every_event() -> None:
    assert set(_HANDLERS) == set(get_args(Event))
