"""Trials come from the search, wait for resources, run and end: events in, effects out."""

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count
from typing import Any, get_args

import pytest

from holdfast.scheduler.effects import (
    Commit,
    Effect,
    Finish,
    Halt,
    Launch,
    Reply,
    Suggest,
    Verdict,
)
from holdfast.scheduler.events import (
    CheckpointLost,
    ConfigAdded,
    EndOrdered,
    Event,
    Exited,
    SamplesAdded,
    SearchEnded,
    Suggested,
    SuggestedAhead,
)
from holdfast.scheduler.launching import lacking, search_text
from holdfast.scheduler.machine import _HANDLERS
from holdfast.testing.rehearsal import Rehearsal, failure, trial_spec
from holdfast.trial.config import CheckpointConfig, FailureConfig
from holdfast.trial.errors import InvalidTransition
from holdfast.trial.events import Returned, Started
from holdfast.trial.trial import Status

WORKERS = 16
THINKS_S = 0.5


class Study:
    """`samples` trials on 16 workers; trial number i takes `lasts_s + i % 5` seconds, and the
    search half a second for each suggestion. `idle_s`: how long workers had no trial although
    there were more to come."""

    def __init__(self, samples: int, lasts_s: float, look_ahead: float) -> None:
        self.samples, self.lasts_s, self.look_ahead = samples, lasts_s, look_ahead
        self.run = Rehearsal(
            capacity={"CPU": float(WORKERS)}, num_samples=samples, options={"search": "Slow"}
        )
        self.ties = count()
        self.agenda: list[tuple[float, int, list[Event]]] = []
        self.idle_s = 0.0
        self.asked: list[int] = []
        self.most_ahead = 0
        self.follow(self.run.began)

    def at(self, after_s: float, *events: Event) -> None:
        heappush(self.agenda, (self.run.now + after_s, next(self.ties), list(events)))

    def play(self, until_s: float = 1e9) -> None:
        """Handle what happens in the next `until_s` seconds."""
        ends_at = self.run.now + until_s
        while self.agenda and self.agenda[0][0] <= ends_at:
            when, _, events = heappop(self.agenda)
            self.idle_s += lacking(self.run.machine) * (when - self.run.now)
            self.run.now = when
            for event in events:
                self.follow(self.run.handle(self.at_its_time(event), after_s=0))

    def at_its_time(self, event: Event) -> Event:
        """What the shell posts: an answer that no worker waits for was made ahead."""
        if isinstance(event, Suggested) and not self.run.machine.asking:
            return SuggestedAhead(suggestion=event)
        return event

    def follow(self, effects: list[Effect]) -> None:
        machine = self.run.machine
        self.most_ahead = max(self.most_ahead, len(machine.ahead))
        for effect in effects:
            match effect:
                case Suggest(known=Suggested() as known):
                    self.follow(self.run.handle(known, after_s=0))
                case Suggest(index=index) if index >= self.samples:
                    self.follow(self.run.handle(SearchEnded(), after_s=0))
                case Suggest(index=index) if index not in self.asked[-1:]:
                    self.asked.append(index)
                    self.at(THINKS_S, self.suggestion(index))
                case Launch(trial_id=trial_id, attempt=attempt):
                    started = Started(
                        trial_id=trial_id, attempt=attempt, pid=1, hostname="host", node_ip=""
                    )
                    self.at(0.0, started)
                    lasts_s = self.lasts_s + machine.trials[trial_id].spec.index % 5
                    returned = Returned(trial_id=trial_id, attempt=attempt)
                    self.at(
                        lasts_s, returned, Exited(trial_id=trial_id, attempt=attempt, cause="")
                    )
                case _:
                    pass

    def suggestion(self, index: int) -> Suggested:
        return Suggested(
            spec=trial_spec(index),
            is_last=index + 1 == self.samples,
            took_s=THINKS_S,
            look_ahead=self.look_ahead,
        )


def test_a_slow_search_that_may_look_ahead_leaves_no_worker_idle() -> None:
    """Several trials end at once; after the start, workers wait only without look-ahead."""
    idle_s = {}
    for share in (0.0, 0.25, 1.0):
        study = Study(64, lasts_s=20, look_ahead=share)
        study.play(until_s=9)  # one after the other, the workers get their first trial
        assert lacking(study.run.machine) == 0
        study.idle_s = 0.0
        study.play()
        assert len(study.run.machine.trials) == 64
        assert study.run.machine.finished
        assert study.most_ahead == int(share * WORKERS)
        idle_s[share] = study.idle_s
    assert idle_s[0.0] > 10
    assert idle_s[0.25] < idle_s[0.0] / 5
    assert idle_s[1.0] == 0


def test_the_trials_are_the_same_with_and_without_looking_ahead() -> None:
    several = [Study(40, lasts_s=6, look_ahead=share) for share in (0.0, 1.0)]
    for study in several:
        study.play()
    one, other = [
        [(trial.spec.index, trial.config) for trial in study.run.machine.trials.values()]
        for study in several
    ]
    assert one == other
    assert [index for index, _ in one] == list(range(40))


def test_each_number_is_asked_for_once() -> None:
    study = Study(40, lasts_s=6, look_ahead=1.0)
    study.play()
    assert study.asked == list(range(40))


@pytest.mark.parametrize("share", [0.25, 1.0])
def test_a_restore_gives_what_was_suggested_ahead_once_and_asks_for_nothing_again(
    share: float,
) -> None:
    study = Study(40, lasts_s=20, look_ahead=share)
    study.play(until_s=17)
    run = study.run
    ahead = [one.spec.trial_id for one in run.machine.ahead]
    assert len(ahead) == share * WORKERS
    run.crash()
    effects = run.resume()
    assert [one.spec.trial_id for one in run.machine.ahead] == ahead
    study.agenda.clear()
    study.follow(effects)
    study.play()
    assert list(run.machine.trials) == [f"t{index}" for index in range(40)]
    assert sorted(set(study.asked)) == list(range(40))


def test_a_person_who_adds_samples_takes_the_end_from_what_was_suggested_ahead() -> None:
    study = Study(18, lasts_s=20, look_ahead=1.0)
    study.play(until_s=12)
    machine = study.run.machine
    assert [one.is_last for one in machine.ahead] == [False, True]
    study.samples = 20
    study.follow(study.run.handle(SamplesAdded(count=2, by="ann", total=20)))
    assert not any(one.is_last for one in machine.ahead)
    study.play()
    assert len(machine.trials) == 20


def test_an_added_config_gets_a_number_after_those_that_were_suggested_ahead() -> None:
    study = Study(40, lasts_s=20, look_ahead=0.25)
    study.play(until_s=12)
    (suggest,) = numbered(study.run.handle(ConfigAdded(config={"lr": 1.0}, by="ann")))
    assert suggest.index == WORKERS + 4


def numbered(effects: list[Effect]) -> Iterator[Suggest]:
    return (effect for effect in effects if isinstance(effect, Suggest))


def test_people_see_how_many_workers_wait_for_the_search_and_how_long_it_takes() -> None:
    study = Study(40, lasts_s=60, look_ahead=0.0)
    run = study.run
    assert search_text(run.machine, run.now) == ""
    assert search_text(run.machine, run.now + 2) == (
        "16 workers wait for the first suggestion of Slow"
    )
    study.play(until_s=4)
    assert search_text(run.machine, run.now) == (
        "8 workers wait for the search: Slow takes 0.5 s per suggestion"
    )
    study.play(until_s=3.5)
    assert search_text(run.machine, run.now) == (
        "1 worker waits for the search: Slow takes 0.5 s per suggestion"
    )
    study.play(until_s=1)
    assert search_text(run.machine, run.now) == ""


def running(count: int = 1, **spec: Any) -> Rehearsal:
    run = Rehearsal(capacity={"CPU": float(count)}, **spec)
    for index in range(count):
        run.suggest()
        run.start(f"t{index}")
    return run


def reply(verdict: Verdict, trial_id: str = "t0") -> Reply:
    return Reply(trial_id=trial_id, attempt=1, verdict=verdict)


BOUNDS: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
    ({"accuracy": 0.9}, {"accuracy": 0.9}, True),
    ({"accuracy": 0.9}, {"accuracy": 0.89}, False),
    ({"accuracy": 0.9}, {}, False),
    ({"accuracy": 0.9}, {"accuracy": None}, False),
    ({"accuracy": 0.9}, {"accuracy": "high"}, False),
    ({"accuracy": 0.9}, {"accuracy": float("nan")}, False),
    ({"eval/accuracy": 0.9}, {"eval": {"accuracy": 1}}, True),
    ({"converged": True}, {"converged": True}, True),
    ({"converged": True}, {"converged": False}, False),
    ({"loss": 5, "accuracy": 0.9}, {"loss": 1, "accuracy": 0.95}, True),
    ({"training_iteration": 1}, {}, True),
    ({"training_iteration": 2}, {}, False),
    ({"time_total_s": 0.5}, {}, True),
    ({"iterations_since_restore": 1}, {}, True),
    ({"time_since_restore": 0.6}, {}, False),
]


@pytest.mark.parametrize(("stop", "metrics", "stops"), BOUNDS)
def test_a_bound_that_is_reached_is_the_answer_to_the_report(
    stop: dict[str, Any], metrics: dict[str, Any], stops: bool
) -> None:
    run = running(stop=stop)
    verdict = Verdict.STOP if stops else Verdict.CONTINUE
    assert run.report("t0", metrics) == [reply(verdict)]
    assert run.trial("t0").status is (Status.STOPPING if stops else Status.RUNNING)


def test_a_users_metric_wins_over_a_count_of_holdfast_as_it_does_in_the_files() -> None:
    run = running(stop={"time_total_s": 100})
    assert run.report("t0", {"time_total_s": 101}) == [reply(Verdict.STOP)]


def test_the_iteration_is_ours_whatever_was_reported() -> None:
    run = running(stop={"training_iteration": 5})
    assert run.report("t0", {"training_iteration": 9})[-1] == reply(Verdict.CONTINUE)


def test_a_trial_that_reports_done_is_done() -> None:
    assert running().report("t0", {"done": True}) == [reply(Verdict.STOP)]
    assert running().report("t0", {"done": "yes"}) == [reply(Verdict.CONTINUE)]


# -- the user's stop function -------------------------------------------------------------------


def test_an_error_in_the_stop_function_of_a_trial_that_is_stopping_changes_nothing() -> None:
    run = running(2, has_stopper=True)
    run.report("t0")
    run.report("t1")
    run.answer("t0", stop_all=True)
    assert run.trial("t1").status is Status.STOPPING
    assert run.answer("t1", failed=failure("stopper"))[-1] == reply(Verdict.STOP, "t1")
    assert run.trial("t1").status is Status.TERMINATED


def test_an_answer_about_a_worker_that_is_gone_is_dropped() -> None:
    run = running(has_stopper=True)
    run.report("t0")
    run.exits("t0", "was killed")
    assert run.answer("t0", stop_all=True) == []
    assert run.machine.ending is None


# -- the end of the run -------------------------------------------------------------------------


def test_a_spent_budget_ends_a_trial_that_waits_for_its_retry() -> None:
    run = running(failure=FailureConfig(max_failures=1), resources=None)
    run.suggest()
    run.fails("t0")
    run.exits("t0")
    assert list(run.machine.placement.queue) == ["t0"]
    run.handle(EndOrdered(reason="budget"))
    assert run.trial("t0").status is Status.TERMINATED
    run.exits("t1")
    assert run.machine.finished


def test_what_never_began_is_left_for_a_restore_with_a_larger_budget() -> None:
    run = running(resources=None)
    run.suggest()
    run.handle(EndOrdered(reason="budget"))
    assert run.trial("t1").status is Status.PENDING


def test_a_report_that_crosses_an_interrupt_is_neither_kept_nor_answered() -> None:
    run = running()
    run.handle(EndOrdered(reason="interrupt"))
    assert run.report("t0") == []
    assert run.trial("t0").iteration == 0


def test_an_interrupt_may_follow_a_budget_but_not_the_other_way_round() -> None:
    run = running()
    run.handle(EndOrdered(reason="budget"))
    run.handle(EndOrdered(reason="interrupt"))
    run.handle(EndOrdered(reason="budget"))
    assert run.exits("t0") == [Finish(reason="interrupt")]


def test_a_worker_that_is_to_save_at_its_end_is_halted_after_its_step() -> None:
    run = running(checkpoint=CheckpointConfig(checkpoint_at_end=True))
    run.report("t0")
    halt = Halt(trial_id="t0", attempt=1, after_step=True)
    assert run.handle(EndOrdered(reason="budget")) == [halt]
    assert run.report("t0") == [reply(Verdict.STOP)]
    (commit,) = run.save("t0")
    assert isinstance(commit, Commit)
    assert commit.checkpoint.iteration == 2
    run.handle(SearchEnded())
    assert run.ends("t0") == [Finish(reason="budget")]


def test_a_stop_that_comes_while_a_worker_starts_reaches_it() -> None:
    run = Rehearsal(capacity={"CPU": 1})
    run.suggest()
    assert run.handle(EndOrdered(reason="budget")) == [Halt(trial_id="t0", attempt=1)]
    assert run.start("t0") == []
    assert run.trial("t0").status is Status.STOPPING
    run.handle(SearchEnded())
    assert run.ends("t0") == [Finish(reason="budget")]


def go_on(trial_id: str) -> Reply:
    return Reply(trial_id=trial_id, attempt=1, verdict=Verdict.CONTINUE)


def test_a_request_that_can_never_be_met_ends_the_run_and_names_it() -> None:
    run = Rehearsal(capacity={"CPU": 2}, resources=None)
    (finish,) = run.suggest({"CPU": 3})
    assert isinstance(finish, Finish)
    assert finish.reason == "abort"
    assert "t0" in finish.message
    assert "{'CPU': 3}" in finish.message
    assert "{'CPU': 2}" in finish.message


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
    assert "Reported: acc, loss" in finish.message


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
