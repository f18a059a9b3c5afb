"""The doctor runs no code of the user, and no record that another version wrote."""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.experiment.projector.projector import Projector, ProjectorSettings
from holdfast.experiment.user_objects import tuner_file
from holdfast.experiment.user_objects.stored_objects import StoredField
from holdfast.results.doctor.repair import collect, repair
from holdfast.results.doctor.verify import verify
from holdfast.scheduler.events import Exited
from holdfast.scheduler.policy import (
    Decision,
    Observation,
    PauseTrial,
    TrialReported,
    TrialScheduler,
    UnpauseTrial,
    View,
)
from holdfast.syncer.files.durable import boot_id
from holdfast.syncer.journal.journal import Journal
from tests.results.doctor.examined import SETTINGS, case, facts, kinds
from tests.rig import checker
from tests.rig.runs.recorded import RecordedExperiment


def test_nothing_of_tuner_pkl_is_unpickled(root: Path, tmp_path: Path) -> None:
    witness = tmp_path / "it was called"

    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(witness),)

    field = pickle.dumps(Trap())
    tuner_file.write(root / "tuner.pkl", {"trainable": StoredField(pickled=field)})
    assert verify(case(root)).findings == ()
    (root / "tuner.pkl").write_bytes(field)
    (finding,) = verify(case(root)).findings
    assert finding.kind == "tuner-file"
    assert "it is not a file of this version" in finding.what
    repair(case(root), SETTINGS)
    assert not witness.exists()


def test_a_record_of_another_version_is_reported_and_nothing_is_changed(root: Path) -> None:
    import msgpack

    journal = Journal(root / "journal")
    journal.append([msgpack.packb(["Teleported", 1.0, {}])])
    journal.close()
    before = facts(root)
    report = verify(case(root))
    assert "journal-foreign" in kinds(report)
    assert facts(root) == before
    assert repair(case(root), SETTINGS).actions == ()
    assert collect(case(root), removes=True).actions == ()


class PausesOnce(TrialScheduler):
    """Pauses the first trial at its first report, and lets it continue when another has ended."""

    def decide(self, view: View, event: Observation) -> Sequence[Decision]:
        first = next(iter(view.trials))
        if isinstance(event, TrialReported) and event.row["training_iteration"] == 1:
            return [PauseTrial(trial_id=first)] if event.trial_id == first else []
        return [UnpauseTrial(trial_id=first)] if event.trial_id != first else []


@pytest.fixture
def paused(in_memory: Path) -> Path:
    """A scheduler of the user's has decided in it."""
    root = in_memory / "run"
    run = RecordedExperiment(root, boot=boot_id(), options={"objects": ["scheduler"]})
    run.machine.policy = PausesOnce()
    first, second = run.begin(), run.begin()
    run.report(first, {"loss": 1.0}, checkpoint="committed")
    run.add(Exited(trial_id=first, attempt=1, cause="ended"))
    run.report(second, {"loss": 1.0})
    run.finish(second)
    run.start(first)
    run.report(first, {"loss": 0.5}, checkpoint="committed")
    run.finish(first)
    run.close()
    assert run.trial(first).attempt == 2
    Projector(run.layout, ProjectorSettings(tensorboard=False)).catch_up()
    tuner_file.write(run.layout.tuner, {"scheduler": StoredField(pickled=b"of no use here")})
    return root


def test_what_a_scheduler_of_the_users_decided_is_judged_and_mended_without_it(
    paused: Path,
) -> None:
    assert verify(case(paused)).findings == ()
    assert collect(case(paused), removes=True).actions == ()
    for path in paused.glob("*/result.json"):
        path.write_text("{}")
    assert set(kinds(verify(case(paused)))) == {"rows-behind"}
    assert repair(case(paused), SETTINGS).findings == ()
    assert checker.check(paused) == []
