"""Writes tests/data/explained: a journal whose trials say why they stopped, which rungs they
reached and what they took over, and the state that it was folded to.

    python tests/data/make_explained.py

It was run once. Its output must load for ever: create another folder for another version rather
than run it again.
"""

import json
from pathlib import Path

from holdfast.experiment.records.journal import pack
from holdfast.scheduler.codec import snapshot
from holdfast.scheduler.events import EndOrdered, SearchEnded
from holdfast.scheduler.policy import CloneTrial, NoteRung, StopTrial
from holdfast.syncer.journal.journal import Journal
from holdfast.testing.rehearsal import Rehearsal
from tests.data.make_format_3 import Told, report

FOLDER = Path(__file__).parent / "explained"


def rehearsed() -> Rehearsal:
    """Four trials: one is stopped at a rung, one trains to the end, one is cloned, one returns."""
    run = Rehearsal(
        capacity={"CPU": 4},
        policy=Told(),
        scheduler="ASHAScheduler",
        metric="loss",
        mode="min",
        num_samples=5,
    )
    for index in range(4):
        run.suggest()
        run.start(f"t{index}")
    note = NoteRung(trial_id="t0", milestone=1, promoted=False, value=0.5, cutoff=0.25)
    why = "loss=0.5 at training_iteration=1 is worse than the cutoff, 0.25"
    report(run, "t0", note, StopTrial(trial_id="t0", why=why, is_early=True, by="ASHAScheduler"))
    report(run, "t1", NoteRung(trial_id="t1", milestone=1, promoted=True, value=0.5, bracket=1))
    report(run, "t1", StopTrial(trial_id="t1", why="max_t", is_early=False))
    report(run, "t3")
    report(run, "t2", CloneTrial(trial_id="t2", source="t3", config={"lr": 0.125}))
    for trial_id in ("t0", "t1", "t2", "t3"):
        run.ends(trial_id)
    run.adopt("t2")
    run.start("t2")
    run.handle(SearchEnded())
    run.handle(EndOrdered(reason="budget", message="the time budget of 60 s is used up"))
    run.ends("t2")
    return run


def main() -> None:
    run = rehearsed()
    journal = Journal(FOLDER / "journal")
    journal.append([pack(*record) for record in run.events])
    journal.close()
    text = json.dumps(snapshot(run.machine), indent=1)
    (FOLDER / "snapshot.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
