"""Writes tests/data/steered: a journal of format 3 of a run that a person steers, with all events
that were added for it, and the state that it was folded to then.

    python tests/data/make_steered.py

It was run once, as make_format_3.py was.
"""

import json
from pathlib import Path

from holdfast.experiment.records.journal import pack
from holdfast.scheduler.codec import snapshot
from holdfast.scheduler.events import (
    ConfigAdded,
    ConfigRefused,
    LimitChanged,
    NoteWritten,
    PauseRequested,
    ResumeRequested,
    SamplesAdded,
    SearchEnded,
    TrialStopOrdered,
)
from holdfast.syncer.journal.journal import Journal
from holdfast.testing.rehearsal import Rehearsal

FOLDER = Path(__file__).parent / "steered"
BY = "ann (page)"


def main() -> None:
    run = Rehearsal(capacity={"CPU": 4}, max_concurrent=2, num_samples=3)
    for _ in range(3):
        run.suggest()
    run.start("t0", "t1")
    run.handle(LimitChanged(max_concurrent=None, by=BY))
    run.start("t2")
    run.handle(SamplesAdded(count=1, by=BY, total=4))
    run.handle(SearchEnded())
    run.handle(PauseRequested(trial_id="t0", by=BY))
    run.report("t0", {"loss": 0.5}, checkpoint=True)
    run.ends("t0")
    run.handle(TrialStopOrdered(trial_id="t1", by=BY))
    run.ends("t1")
    run.handle(PauseRequested(trial_id="t2", by="ann (command)", now=True))
    run.exits("t2")
    run.handle(ResumeRequested(trial_id="t2", by=BY))
    run.handle(ConfigAdded(config={"lr": 0.25, "shape": (1, 2)}, by=BY))
    run.suggest(is_added=True)
    run.handle(ConfigAdded(config={"lr": -1}, by=BY))
    run.handle(ConfigRefused(why="ValueError: lr must be positive"))
    run.handle(ConfigAdded(config={"lr": 0.125}, by=BY))
    run.handle(NoteWritten(trial_id="t0", text="is its data right?", by=BY))
    run.handle(PauseRequested(trial_id="t2", by=BY))
    journal = Journal(FOLDER / "journal")
    journal.append([pack(*record) for record in run.events])
    journal.close()
    (FOLDER / "snapshot.json").write_text(json.dumps(snapshot(run.machine), indent=1) + "\n")


if __name__ == "__main__":
    main()
