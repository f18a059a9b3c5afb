"""Writes tests/data/settled: a journal of format version 3 whose nodes detect what they have, with
the event that was added for them, and the state that it was folded to then.

    python tests/data/make_settled.py

It was run once, as make_format_3.py was.
"""

import json
from pathlib import Path

from holdfast.experiment.records.journal import pack
from holdfast.scheduler.codec import snapshot
from holdfast.syncer.journal.journal import Journal
from holdfast.testing.rehearsal import Rehearsal
from holdfast.trial.resources import NodeKind

FOLDER = Path(__file__).parent / "settled"
HOSTS = NodeKind(name="ssh", resources={"disk": 1}, most=2, detects=("CPU", "GPU", "memory"))


def main() -> None:
    run = Rehearsal(capacity={}, offer=(HOSTS,))
    run.joins("a", {"CPU": 1, "memory": 8e9, "disk": 1}, kind="ssh")
    run.suggest()
    run.start("t0")
    run.settles("b: no answer")
    journal = Journal(FOLDER / "journal")
    journal.append([pack(*record) for record in run.events])
    journal.close()
    (FOLDER / "snapshot.json").write_text(json.dumps(snapshot(run.machine), indent=1) + "\n")


if __name__ == "__main__":
    main()
