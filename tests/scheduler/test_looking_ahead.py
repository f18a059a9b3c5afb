"""A slow search is asked for trials before workers are free for them. In virtual time."""

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count

import pytest

from holdfast.scheduler.effects import Effect, Launch, Suggest
from holdfast.scheduler.events import (
    ConfigAdded,
    Event,
    Exited,
    SamplesAdded,
    SearchEnded,
    Suggested,
    SuggestedAhead,
)
from holdfast.scheduler.placing import lacking, search_text
from holdfast.testing.rehearsal import Rehearsal, trial_spec
from holdfast.trial.events import Returned, Started

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


def test_a_fast_search_is_not_asked_ahead() -> None:
    run = Rehearsal(capacity={"CPU": 2.0}, num_samples=9)
    for index in range(2):
        effects = run.handle(Suggested(spec=trial_spec(index), look_ahead=1.0))
    assert [effect for effect in effects if isinstance(effect, Suggest)] == []


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


def test_no_more_workers_wait_than_there_are_trials_to_come() -> None:
    study = Study(10, lasts_s=60, look_ahead=0.0)
    study.play(until_s=4)
    assert lacking(study.run.machine) == 2
