"""Writes tests/data/measured: a journal of format 3 that says what attempts have used and have
not read, which trial violates a constraint, and the state that it was folded to then.

    python tests/data/make_measured.py

It was run once, as make_format_3.py was.
"""

import json
from pathlib import Path

from holdfast.experiment.records.journal import pack
from holdfast.scheduler.codec import snapshot
from holdfast.syncer.journal.journal import Journal
from holdfast.testing.rehearsal import Rehearsal
from holdfast.trial.events import ConstraintViolated, Measured, Unread
from holdfast.trial.resources import Usage

FOLDER = Path(__file__).parent / "measured"


def main() -> None:
    run = Rehearsal(capacity={"CPU": 2, "memory": 8e9})
    run.suggest()
    run.start("t0")
    so_far = Usage(attempt=1, wall_s=5.5, cpu_s=2.25, memory_bytes=3 << 20)
    run.handle(Measured(trial_id="t0", usage=so_far))
    on_gpu = Usage(
        attempt=1,
        wall_s=9.0,
        cpu_s=4.5,
        memory_bytes=5 << 20,
        gpu_s=4.5,
        gpu_memory_bytes=7 << 30,
        gpu_utilisation=0.75,
    )
    run.handle(Measured(trial_id="t0", usage=on_gpu))
    run.handle(ConstraintViolated(trial_id="t0"))
    run.handle(Unread(trial_id="t0", lines=3))
    journal = Journal(FOLDER / "journal")
    journal.append([pack(*record) for record in run.events])
    journal.close()
    (FOLDER / "snapshot.json").write_text(json.dumps(snapshot(run.machine), indent=1) + "\n")


if __name__ == "__main__":
    main()
