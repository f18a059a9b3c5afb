"""Stops, a limit, more trials, added configs and notes, as a person orders them during a run."""

import msgpack
import pytest

from holdfast.scheduler.codec import encode, snapshot
from holdfast.scheduler.effects import Finish, Suggest, Warn
from holdfast.scheduler.events import (
    ConfigRefused,
    LimitChanged,
    NoteWritten,
    Order,
    SamplesAdded,
    SearchEnded,
    SearchWaits,
    Suggested,
)
from holdfast.scheduler.machine import from_snapshot
from holdfast.scheduler.steering import MOST_NOTE_CHARS, refusal
from holdfast.testing.rehearsal import Rehearsal, facts, trial_spec
from holdfast.trial.config import FailureConfig
from holdfast.trial.trial import Status
from tests.scheduler.steering.orders import (
    BY,
    added,
    launched,
    pause,
    paused,
    resume,
    running,
    stop,
)


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


def is_complete(run: Rehearsal) -> bool:
    return run.machine.is_complete


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


def test_an_added_config_becomes_a_trial_that_starts_before_those_that_wait() -> None:
    run = running()
    run.suggest()
    assert run.handle(added()) == [Suggest(index=2, config={"lr": 0.5})]
    run.suggest(is_added=True)
    assert list(run.machine.placement.queue) == ["t2", "t1"]
    assert launched(run.ends("t0")) == ["t2"]


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
