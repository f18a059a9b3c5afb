"""A search hears of pauses, also if another trial's report has caused them."""

from holdfast.experiment.control.user_code import pausing_of
from holdfast.experiment.control.user_threads import others_moved
from holdfast.scheduler.events import SearchEnded
from holdfast.scheduler.policies.hyperband import HyperBandScheduler
from holdfast.testing.rehearsal import Rehearsal


def test_trials_that_another_one_resumes_or_stops_are_reported_with_their_former_state() -> None:
    run = Rehearsal(
        capacity={"CPU": 3.0},
        policy=HyperBandScheduler(max_t=3, metric="loss", mode="min"),
        scheduler="HyperBandScheduler",
    )
    for index in range(3):
        run.suggest()
        run.start(f"t{index}")
    run.handle(SearchEnded())
    running = run.trial("t0")
    run.report("t0", {"loss": 1.0}, checkpoint=True)
    assert pausing_of(running, run.trial("t0")) == "on_pause"
    assert others_moved(run.machine, "t0") == []
    run.ends("t0")
    run.report("t1", {"loss": 2.0}, checkpoint=True)
    run.report("t2", {"loss": 3.0}, checkpoint=True)
    told = {
        after.trial_id: (event, before and pausing_of(before, after), after.status.is_final)
        for event, before, after in others_moved(run.machine, "t2")
        if after is not None
    }
    assert told == {"t0": (None, "on_unpause", False), "t1": (None, "", True)}
