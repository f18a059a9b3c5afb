"""One event of every kind, and a trial in every status: for tests and for the docs."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from holdfast.errors import Remedy
from holdfast.scheduler.events import (
    Begun,
    CheckpointLost,
    ConfigAdded,
    ConfigRefused,
    EndOrdered,
    Event,
    Exited,
    LimitChanged,
    NodeJoined,
    NodeLeaving,
    NodeLeft,
    NodesSettled,
    NoteWritten,
    PauseRequested,
    Raised,
    Recalled,
    Resumed,
    ResumeRequested,
    SamplesAdded,
    SchedulerAnswered,
    SearchEnded,
    SearchWaits,
    StopperAnswered,
    Suggested,
    SuggestedAhead,
    TrialStopOrdered,
    WaitEnded,
)
from holdfast.scheduler.policy import (
    Abort,
    AskUser,
    ChangeTrial,
    CloneTrial,
    Decision,
    NoteRung,
    PauseTrial,
    SaveTrial,
    StopTrial,
    Tell,
    UnpauseTrial,
)
from holdfast.testing.rehearsal import experiment_spec, failure, trial_spec
from holdfast.trial.config import CheckpointConfig, FailureConfig, ResumeType
from holdfast.trial.events import (
    Adopted,
    Changed,
    Cloned,
    Committed,
    ConstraintViolated,
    Dropped,
    Errored,
    Held,
    HoldEnded,
    Interrupted,
    Launched,
    Measured,
    Noted,
    PauseOrdered,
    Reopened,
    Reported,
    Retried,
    Returned,
    RungReached,
    Saved,
    Shrunk,
    Started,
    StopOrdered,
    TrialEvent,
    Unpaused,
    Unread,
)
from holdfast.trial.resources import NodeKind, PlacementGroupFactory, Usage
from holdfast.trial.trial import (
    CheckpointRecord,
    Origin,
    Place,
    RungVisit,
    Status,
    Stop,
    StopReason,
    Trial,
)
from holdfast.trial.values import Opaque, Ref

BUNDLES = PlacementGroupFactory([{"CPU": 1}, {"CPU": 2, "GPU": 0.5}], strategy="SPREAD")
CHECKPOINT = CheckpointRecord(index=2, iteration=7, attempt=2, files=3, size_bytes=4096, score=0.5)

USAGE = Usage(
    attempt=1,
    wall_s=2.5,
    cpu_s=4.0,
    memory_bytes=1 << 30,
    gpu_s=2.5,
    gpu_memory_bytes=3 << 30,
    gpu_utilisation=0.5,
)
STARTED = Started(trial_id="t0", attempt=2, pid=41, hostname="host", node_ip="127.0.0.1")
REPORTED = Reported(
    trial_id="t0",
    attempt=2,
    iteration=7,
    metrics={"loss": 0.25, "net": {"depth": 3, "names": ["a", "b"]}, "raw": b"\x00\xff"},
    timestamp=1_700_000_000.25,
    time_this_iter_s=0.5,
    time_total_s=3.5,
    checkpoint=CHECKPOINT,
)

VISIT = RungVisit(milestone=9, promoted=True, value=0.5, cutoff=None, bracket=0, at=5.0)
ADOPTED = Adopted(trial_id="t0", attempt=2, checkpoint=CHECKPOINT)

TRIAL_EVENTS: tuple[TrialEvent, ...] = (
    Launched(trial_id="t0"),
    STARTED,
    REPORTED,
    Saved(trial_id="t0", attempt=2, checkpoint=CHECKPOINT),
    ADOPTED,
    Cloned(
        trial_id="t0",
        origin=Origin(trial_id="t1", checkpoint=CHECKPOINT),
        config={"lr": 0.1, "opt": Ref(path=("opt",), index=1, summary="sgd")},
    ),
    Changed(trial_id="t0", resources=BUNDLES),
    StopOrdered(trial_id="t0", stop=Stop(reason=StopReason.PRUNED, by="ASHA", why="worse")),
    RungReached(trial_id="t0", visit=VISIT),
    PauseOrdered(trial_id="t0"),
    Unpaused(trial_id="t0"),
    Held(trial_id="t0"),
    HoldEnded(trial_id="t0"),
    Noted(trial_id="t0", note="look at its gradients"),
    Returned(trial_id="t0", attempt=2),
    Retried(trial_id="t0", failure=failure()),
    Shrunk(trial_id="t0", failure=failure(), until=5.0),
    Errored(trial_id="t0", failure=failure()),
    Interrupted(trial_id="t0"),
    Reopened(trial_id="t0", from_scratch=True),
    Measured(trial_id="t0", usage=USAGE),
    ConstraintViolated(trial_id="t0"),
    Unread(trial_id="t0", lines=3),
    Committed(trial_id="t0", index=1),
    Dropped(trial_id="t0", index=1),
)

EVENTS: tuple[Event, ...] = (
    Begun(
        spec=experiment_spec(
            metric="loss",
            mode="min",
            num_samples=-1,
            max_concurrent=4,
            time_budget_s=60.0,
            reuse_actors=True,
            stop={"training_iteration": 10, "converged": True},
            has_stopper=True,
            scheduler="ASHAScheduler",
            saves_when_told=True,
            resources=BUNDLES,
            failure=FailureConfig(max_failures=-1),
            checkpoint=CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="loss"),
            space=({"path": ["lr"], "text": "uniform(0, 1)", "varied": True},),
            options={"verbose": 1},
        ),
        capacity={"CPU": 8, "GPU": 1, "licence": 2.5},
        offer=(NodeKind(name="k", resources={"CPU": 8}, most=4), NodeKind(name="other")),
        boot_id="boot",
    ),
    Recalled(
        spec=experiment_spec(),
        state={
            "trials": [],
            "queue": [],
            "paused": [],
            "holds": {},
            "idle": {},
            "finished": False,
            "search_ended": False,
            "metric_seen": False,
            "asking": False,
            "capacity": {"CPU": 8},
            "epoch": 1,
            "boot_id": "boot",
            "ending": None,
            "active_s": 0.5,
            "now": 1.0,
        },
    ),
    Resumed(
        epoch=2,
        capacity={"CPU": 4},
        unfinished=ResumeType.RESTART,
        errored=ResumeType.RESUME,
        finished=ResumeType.RESUME,
        boot_id="another boot",
        spec=experiment_spec(num_samples=8, stop_metrics=("loss",), stop_number=1),
    ),
    Suggested(
        spec=replace(
            trial_spec(0, BUNDLES),
            config={
                "lr": 0.5,
                "layers": (1, [2]),
                "data": Ref(path=("data", 1), index=0, summary="Frame"),
                "model": Opaque(pickled=b"\x80\x05", summary="Net"),
                "raw": b"\x00",
            },
        )
    ),
    SuggestedAhead(
        suggestion=Suggested(spec=trial_spec(1, BUNDLES), unheard=2, took_s=0.5, look_ahead=0.125)
    ),
    SearchEnded(),
    STARTED,
    REPORTED,
    Saved(trial_id="t0", attempt=2, checkpoint=CHECKPOINT),
    Returned(trial_id="t0", attempt=2),
    Raised(trial_id="t0", attempt=2, failure=replace(failure(), pid=41, traceback="Traceback")),
    Exited(trial_id="t0", attempt=2, cause="exited with status 0"),
    WaitEnded(trial_id="t0", attempt=2),
    StopperAnswered(
        trial_id="t0",
        attempt=2,
        iteration=7,
        stop=True,
        stop_all=True,
        failure=failure("stopper"),
    ),
    SchedulerAnswered(trial_id="t0", answer={"config": {"lr": 0.5, "layers": (1, [2])}}),
    SearchWaits(),
    ADOPTED,
    CheckpointLost(trial_id="t0", index=1, reason="no such folder"),
    Measured(trial_id="t0", usage=USAGE),
    ConstraintViolated(trial_id="t0"),
    Unread(trial_id="t0", lines=3),
    Committed(trial_id="t0", index=1),
    EndOrdered(reason="budget", message="spent", remedy=Remedy.RESUME),
    NodeJoined(
        node="n1",
        resources={"CPU": 8, "GPU": 1},
        hostname="n1.local",
        address="10.0.0.1",
        kind="k",
    ),
    NodeLeaving(node="n1", seconds=30.0, why="its time is over"),
    NodeLeft(node="n1", cause="no beat for 10 s"),
    NodesSettled(missing="n2"),
    TrialStopOrdered(trial_id="t0", by="ann (page)"),
    PauseRequested(trial_id="t0", by="ann (command)", now=True),
    ResumeRequested(trial_id="t0", by="ann (page)"),
    LimitChanged(max_concurrent=None, by="ann (page)"),
    SamplesAdded(count=5, by="ann (page)"),
    ConfigAdded(config={"lr": 0.1, "layers": (1, [2])}, by="ann (page)"),
    ConfigRefused(why="ValueError: lr is too large"),
    NoteWritten(trial_id="t0", text="look at its gradients", by="ann (page)"),
)

DECISIONS: tuple[Decision, ...] = (
    StopTrial(trial_id="t0"),
    StopTrial(trial_id="t0", why="worse", is_early=True, by="ASHAScheduler"),
    PauseTrial(trial_id="t0"),
    UnpauseTrial(trial_id="t0"),
    SaveTrial(trial_id="t0"),
    CloneTrial(trial_id="t0", source="t1", config={"lr": 0.1, "layers": (1, [2])}),
    ChangeTrial(trial_id="t0", config={"lr": 0.1}, resources=BUNDLES),
    ChangeTrial(trial_id="t0"),
    AskUser(trial_id="t0", question={"config": {"lr": 0.1}, "layers": (1, 2)}),
    NoteRung(trial_id="t0", milestone=9, promoted=True, value=0.5, cutoff=0.6, bracket=1),
    NoteRung(trial_id="t0", milestone=9),
    Tell(text="look"),
    Abort(message="no such metric"),
)

assert {type(event) for event in TRIAL_EVENTS} == set(get_args(TrialEvent))
assert {type(event) for event in EVENTS} == set(get_args(Event))
assert {type(decision) for decision in DECISIONS} == set(get_args(Decision))


def trial_in(status: Status) -> Trial:
    """A trial in its second attempt, with two checkpoints and a row."""
    return Trial(
        spec=trial_spec(0),
        status=status,
        attempt=2,
        iteration=6,
        resumed_from=4,
        time_total_s=3.0,
        time_at_start_s=2.0,
        row={"loss": 0.5},
        failures=1,
        error=failure() if status is Status.ERROR else None,
        checkpoints=tuple(
            CheckpointRecord(
                index=index,
                iteration=2 * index + 2,
                attempt=1,
                files=1,
                size_bytes=9,
                time_total_s=index + 1.0,
            )
            for index in range(2)
        ),
        next_checkpoint=2,
        place=Place(pid=40, hostname="host", node_ip="127.0.0.1"),
    )
