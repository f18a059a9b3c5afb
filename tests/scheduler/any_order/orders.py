"""What a scheduler and a person may order in the walk, and what trials of it ask for."""

from collections.abc import Sequence

from hypothesis import strategies as st

from holdfast.scheduler.events import (
    ConfigAdded,
    Event,
    LimitChanged,
    NoteWritten,
    PauseRequested,
    ResumeRequested,
    SamplesAdded,
    TrialStopOrdered,
)
from holdfast.scheduler.policy import (
    AskUser,
    ChangeTrial,
    CloneTrial,
    Decision,
    Observation,
    PauseTrial,
    SaveTrial,
    StopTrial,
    TrialAdded,
    TrialReported,
    TrialScheduler,
    UnpauseTrial,
    UserAnswered,
    View,
)
from holdfast.trial.resources import STRATEGIES, PlacementGroupFactory

CAPACITY = {"CPU": 3, "GPU": 1}
REQUESTS: list[dict[str, float]] = [
    {"CPU": 1},
    {"CPU": 1},
    {"CPU": 2},
    {"CPU": 0.5, "GPU": 1 / 3},
    {"GPU": 1},
]
MOST = 8
BUNDLES = [
    *(PlacementGroupFactory([request]) for request in REQUESTS),
    *(PlacementGroupFactory([{}, {"CPU": 1}, {"CPU": 1}], strategy) for strategy in STRATEGIES),
    PlacementGroupFactory([{"CPU": 1}] * 4, "SPREAD", least_bundles=2),
    PlacementGroupFactory([{"GPU": 1}, {"CPU": 2}, {"CPU": 1}], least_bundles=1),
]
# The decisions that a report or an answer may lead to: kind, number of the trial, and another
# number: of a clone's source, of new resources, or of a new config.
Order = tuple[str, int, int]
KINDS = ["stop", "pause", "unpause", "clone", "clone", "change", "ask", "save"]
ORDERS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 5), st.integers(0, 5)), max_size=2
)


class Obeying(TrialScheduler):
    """Decides what the report's row, or the user's answer, says, so a replay decides the same.

    It asks about every third trial before that starts.
    """

    def decide(self, view: View, event: Observation) -> Sequence[Decision]:
        match event:
            case TrialAdded() if view.trials[event.trial_id].spec.index % 3 == 2:
                return [AskUser(trial_id=event.trial_id, question={})]
            case TrialReported(row=told) | UserAnswered(answer=told):
                return [decision(view, event.trial_id, *order) for order in told["orders"]]
            case _:
                return ()


def decision(view: View, reporting: str, kind: str, number: int, other: int) -> Decision:
    """The trial for a number; 0 for the one that the event is about."""
    trials = [reporting, *view.trials]
    trial_id = trials[number % len(trials)]
    saved = [one for one in view.trials if one != trial_id and view.trials[one].checkpoints]
    match kind:
        case "stop":
            return StopTrial(trial_id=trial_id)
        case "pause":
            return PauseTrial(trial_id=trial_id)
        case "unpause":
            return UnpauseTrial(trial_id=trial_id)
        case "clone" if saved:
            source = saved[other % len(saved)]
            return CloneTrial(trial_id=trial_id, source=source, config={"lr": -1 - other})
        case "change":
            config = {"lr": 1 + other} if other % 2 else None
            resources = None
            if other < 5:
                resources = BUNDLES[other * 2 if view.total_resources != CAPACITY else other]
            return ChangeTrial(trial_id=trial_id, config=config, resources=resources)
        case "ask":
            return AskUser(trial_id=trial_id, question={})
        case _:
            return SaveTrial(trial_id=trial_id)


ORDERS_OF_PEOPLE = ["stop", "pause", "pause", "now", "resume", "resume", "limit", "add", "config"]


def order_of_a_person(order: str, trial_id: str, number: int) -> Event | None:
    """None if the order needs a trial and there is none."""
    match order:
        case "limit":
            return LimitChanged(max_concurrent=number or None, by="ann")
        case "add":
            return SamplesAdded(count=number, by="ann")
        case "config":
            return ConfigAdded(config={"lr": number}, by="ann")
        case _ if not trial_id:
            return None
        case "stop" if number % 2:  # rarer than the others
            return TrialStopOrdered(trial_id=trial_id, by="ann")
        case "resume":
            return ResumeRequested(trial_id=trial_id, by="ann")
        case "pause" | "now":
            return PauseRequested(trial_id=trial_id, by="ann", now=order == "now")
        case _:
            return NoteWritten(trial_id=trial_id, text="x" * number, by="ann")
