"""A sample of the campaign of damaged and forged files; `scripts/mutations` runs it long."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.rig.mutation.campaign import Tally, play

pytestmark = pytest.mark.process

SCRIPT = Path(__file__).parent / "specimens.py"
# A checkpoint's manifest and a record of the journal, then most kinds of files. CI runs others
# each day.
SEEDS = [
    {"killed": range(15, 16), "on another machine": range(9, 10)},
    {"killed": range(8), "on another machine": range(4, 12)},
]


@pytest.mark.nightly
@pytest.mark.parametrize("seeds", SEEDS, ids=str)
def test_no_command_fails_badly_whatever_the_files_say(
    tmp_path: Path, seeds: Mapping[str, range]
) -> None:
    tally = Tally()
    findings = play(SCRIPT, tmp_path, seeds, tally, jobs=2, deadline_s=120)
    assert tally.mutations == sum(map(len, seeds.values()))
    assert not findings, "\n".join(map(str, findings))
