"""Writes tests/data/format-1: a journal of format version 1, and what it was folded to then.

    python tests/data/make_format_1.py

It was run once. What it wrote must load for ever: make another folder for another version rather
than run it again.
"""

import json
from pathlib import Path

from holdfast.experiment.records import pack
from holdfast.scheduler.codec import EVENTS, snapshot
from holdfast.scheduler.events import CheckpointLost, EndOrdered, SearchEnded
from holdfast.syncer.journal import Journal
from holdfast.testing.rehearsal import Rehearsal
from holdfast.testing.samples import BUNDLES
from holdfast.trial.config import CheckpointConfig, FailureConfig

FOLDER = Path(__file__).parent / "format-1"


def rehearsed() -> Rehearsal:
    """An experiment in which everything happens that a journal can tell."""
    run = Rehearsal(
        capacity={"CPU": 8, "GPU": 1},
        metric="loss",
        mode="min",
        num_samples=3,
        has_stopper=True,
        resources=None,
        stop={"training_iteration": 3},
        failure=FailureConfig(max_failures=1),
        checkpoint=CheckpointConfig(num_to_keep=1, checkpoint_score_attribute="loss"),
        space=({"path": ["lr"], "text": "uniform(0, 1)", "varied": True},),
        options={"verbose": 1},
    )
    run.suggest(BUNDLES)
    run.suggest()
    run.start("t0", "t1")
    for loss in (0.5, 0.75, float("nan")):
        run.report("t0", {"loss": loss, "eval": {"names": ["a", "b"]}}, checkpoint=True)
        run.answer("t0")
        run.commit("t0", run.trial("t0").next_checkpoint - 1)
    run.save("t0")
    run.returns("t0")
    run.exits("t0")
    run.fails("t1")
    run.exits("t1")
    run.start("t1")
    run.report("t1", {"loss": 1.0}, checkpoint=True)
    run.handle(EndOrdered(reason="interrupt", message="Ctrl-C"))
    run.exits("t1", "was killed by signal 15 (SIGTERM)")
    run.handle(CheckpointLost(trial_id="t1", index=0, reason="its folder is missing"))
    run.resume(errored="resume")
    run.start("t1")
    run.suggest()
    run.handle(SearchEnded())
    run.start("t2")
    return run


def main() -> None:
    run = rehearsed()
    told = {type(event).__name__ for event, _ in run.events}
    assert told == set(EVENTS), f"not told: {set(EVENTS) - told}"
    journal = Journal(FOLDER / "journal")
    journal.append([pack(event, now) for event, now in run.events])
    journal.close()
    text = json.dumps(snapshot(run.machine), indent=1)
    (FOLDER / "snapshot.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
