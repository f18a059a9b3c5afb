"""A sample of the campaign of damaged and forged files; `scripts/mutations` runs it long."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rig.mutation.campaign import Tally, play

pytestmark = pytest.mark.process

SCRIPT = Path(__file__).parent / "specimens.py"
# Chosen so that a journal, a snapshot, a head, a manifest and tuner.pkl are among the changed
# files.
SEEDS = {"killed": range(4), "on another machine": range(4)}


def test_no_command_fails_badly_whatever_the_files_say(tmp_path: Path) -> None:
    tally = Tally()
    findings = play(SCRIPT, tmp_path, SEEDS, tally, jobs=2, deadline_s=120)
    assert tally.mutations == sum(map(len, SEEDS.values()))
    assert not findings, "\n".join(map(str, findings))
