"""The doctor runs no code of the user, and no record that another version wrote."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

from holdfast.experiment.user_objects import tuner_file
from holdfast.experiment.user_objects.stored_objects import StoredField
from holdfast.results.doctor.repair import collect, repair
from holdfast.results.doctor.verify import verify
from holdfast.syncer.journal.journal import Journal
from tests.results.doctor.examined import SETTINGS, case, facts, kinds


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
