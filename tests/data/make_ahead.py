"""Writes tests/data/ahead: a journal of format 3 of a run whose slow search is asked ahead, and
the state that it was folded to then.

    python tests/data/make_ahead.py

It was run once, as make_format_3.py was.
"""

import json
from pathlib import Path

from holdfast.experiment.records.journal import pack
from holdfast.scheduler.codec import snapshot
from holdfast.scheduler.events import Suggested, SuggestedAhead
from holdfast.syncer.journal.journal import Journal
from holdfast.testing.rehearsal import Rehearsal, trial_spec

FOLDER = Path(__file__).parent / "ahead"


def suggested(index: int) -> Suggested:
    return Suggested(spec=trial_spec(index), took_s=0.5, look_ahead=1.0)


def main() -> None:
    run = Rehearsal(capacity={"CPU": 2}, num_samples=5)
    run.handle(suggested(0))
    run.handle(suggested(1))
    run.start("t0", "t1")
    run.handle(SuggestedAhead(suggestion=suggested(2)))
    run.handle(SuggestedAhead(suggestion=suggested(3)))
    run.report("t0", {"loss": 0.5})
    run.ends("t0")
    run.handle(suggested(2))
    run.start("t2")
    journal = Journal(FOLDER / "journal")
    journal.append([pack(*record) for record in run.events])
    journal.close()
    (FOLDER / "snapshot.json").write_text(json.dumps(snapshot(run.machine), indent=1) + "\n")


if __name__ == "__main__":
    main()
