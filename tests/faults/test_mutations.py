"""A sample of the campaign of damaged and forged files; `scripts/mutations` runs it long."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rig.mutation.campaign import Tally, play
from tests.rig.nightly import rest_nightly

pytestmark = pytest.mark.process

SCRIPT = Path(__file__).parent / "specimens.py"
# Chosen so that a journal, a snapshot, a head, a manifest and tuner.pkl are among the changed
# files.
SEEDS = [range(2), range(2, 8)]


@pytest.mark.parametrize("seeds", rest_nightly(1, SEEDS), ids=str)
def test_no_command_fails_badly_whatever_the_files_say(tmp_path: Path, seeds: range) -> None:
    tally = Tally()
    kinds = {"killed": seeds, "on another machine": seeds}
    findings = play(SCRIPT, tmp_path, kinds, tally, jobs=2, deadline_s=120)
    assert tally.mutations == 2 * len(seeds)
    assert not findings, "\n".join(map(str, findings))
