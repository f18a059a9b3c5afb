"""Orders that do not apply, and what a snapshot and the records keep of the others."""

import msgpack
import pytest

from holdfast.scheduler.codec import encode, snapshot
from holdfast.scheduler.events import LimitChanged, NoteWritten, Order, SamplesAdded, Suggested
from holdfast.scheduler.machine import from_snapshot
from holdfast.scheduler.steering import MOST_NOTE_CHARS, refusal
from holdfast.testing.rehearsal import Rehearsal, facts, trial_spec
from holdfast.trial.trial import Status
from tests.scheduler.steering.orders import BY, added, pause, paused, resume, running, stop


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
