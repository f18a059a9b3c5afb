"""Writes tests/data/format-3: a journal of format version 3, and the state that it was folded to
then.

    python tests/data/make_format_3.py

It was run once. Its output must load for ever: create another folder for another version rather
than run it again.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from holdfast.experiment.records.journal import pack
from holdfast.scheduler.codec import DECISIONS, EVENTS, snapshot
from holdfast.scheduler.events import (
    CheckpointLost,
    EndOrdered,
    SchedulerAnswered,
    SearchEnded,
    SearchWaits,
)
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
    TrialReported,
    TrialScheduler,
    UnpauseTrial,
    UserAnswered,
    View,
)
from holdfast.syncer.journal.journal import Journal
from holdfast.testing.rehearsal import Rehearsal
from holdfast.trial.config import CheckpointConfig, FailureConfig
from holdfast.trial.events import Adopted
from holdfast.trial.resources import NodeKind, PlacementGroupFactory
from tests.rig.scheduler.samples import ADOPTED

FOLDER = Path(__file__).parent / "format-3"
OFFER = (
    NodeKind(name="large", most=3),
    NodeKind(name="small", resources={"CPU": 1}),
)
BETTER = {"lr": 0.1, "layers": (1, [2])}


class Told(TrialScheduler):
    """Decides at each report and answer what is next in its script."""

    def __init__(self) -> None:
        self.script: list[Sequence[Decision]] = []

    def decide(self, view: View, event: Observation) -> Sequence[Decision]:
        if isinstance(event, (TrialReported, UserAnswered)) and self.script:
            return self.script.pop(0)
        return ()


def report(run: Rehearsal, trial_id: str, *decisions: Decision) -> None:
    """A report with a checkpoint, after which this is decided."""
    policy = run.machine.policy
    assert isinstance(policy, Told)
    policy.script = [decisions]
    run.report(trial_id, {"loss": 0.5, "eval": {"names": ["a", "b"]}}, checkpoint=True)
    run.answer(trial_id)


def rehearsed() -> Rehearsal:
    """An experiment on a cluster, with every event that a journal can contain."""
    run = Rehearsal(
        capacity={},
        offer=OFFER,
        policy=Told(),
        scheduler="Told",
        saves_when_told=True,
        metric="loss",
        mode="min",
        num_samples=4,
        has_stopper=True,
        failure=FailureConfig(max_failures=1, retry_wait_s=1.0),
        checkpoint=CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="loss"),
        space=({"path": ["lr"], "text": "uniform(0, 1)", "varied": True},),
    )
    run.joins("a", {"CPU": 3, "GPU": 1, "memory": 8e9}, kind="large")
    run.joins("b", {"CPU": 1}, kind="small")
    for trial_id in ("t0", "t1", "t2"):
        run.suggest()
        run.start(trial_id)
    report(run, "t0", SaveTrial(trial_id="t0"), Tell(text="look"))
    run.save("t0")
    run.commit("t0", 0)
    report(run, "t1", CloneTrial(trial_id="t1", source="t0", config=BETTER, is_logged=True))
    run.ends("t1")
    adopted = replace(ADOPTED.checkpoint, index=run.trial("t1").next_checkpoint, attempt=2)
    run.handle(Adopted(trial_id="t1", attempt=2, checkpoint=adopted))
    run.start("t1")
    report(run, "t2", AskUser(trial_id="t2", question={"config": BETTER}))
    policy = run.machine.policy
    assert isinstance(policy, Told)
    policy.script = [[ChangeTrial(trial_id="t2", resources=PlacementGroupFactory([{"CPU": 2}]))]]
    run.handle(SchedulerAnswered(trial_id="t2", answer={"config": BETTER}))
    run.ends("t2")
    run.start("t2")
    run.fails("t2")
    run.exits("t2")
    run.waited("t2")
    run.start("t2")
    run.is_leaving("b")
    run.leaves("b")
    report(run, "t0", PauseTrial(trial_id="t0"))
    run.handle(SearchWaits())
    run.ends("t0")
    report(run, "t1", UnpauseTrial(trial_id="t0"))
    run.start("t0")
    report(run, "t2", StopTrial(trial_id="t2"))
    run.ends("t2")
    report(run, "t1", Abort(message="no such metric"))
    run.exits("t0", "was killed by signal 15 (SIGTERM)")
    run.exits("t1", "was killed by signal 15 (SIGTERM)")
    run.handle(CheckpointLost(trial_id="t1", index=2, reason="its folder is missing"))
    run.resume(errored="resume", changed={"num_samples": 5})
    run.joins("c", {"CPU": 2}, kind="large")
    run.joins("d", {"CPU": 2}, kind="small")
    run.start("t0", "t1")
    run.suggest()
    run.handle(SearchEnded())
    report(run, "t0", PauseTrial(trial_id="t0"))
    run.ends("t0")
    run.handle(EndOrdered(reason="interrupt", message="Ctrl-C"))
    run.resume()
    run.joins("e", {"CPU": 2}, kind="large")
    return run


def main() -> None:
    run = rehearsed()
    told = {type(record.event).__name__ for record in run.events}
    decided = {type(d).__name__ for record in run.events for a in record.answers for d in a}
    assert told == set(EVENTS) - {"Recalled"}, f"not told: {set(EVENTS) - told}"
    assert decided == set(DECISIONS), f"not decided: {set(DECISIONS) - decided}"
    journal = Journal(FOLDER / "journal")
    journal.append([pack(*record) for record in run.events])
    journal.close()
    text = json.dumps(snapshot(run.machine), indent=1)
    (FOLDER / "snapshot.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
