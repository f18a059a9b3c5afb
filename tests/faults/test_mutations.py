"""A sample of the campaign of damaged and forged files; `scripts/mutations` runs it long."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.rig.mutation.campaign import Tally, play
from tests.rig.nightly import rest_nightly

pytestmark = pytest.mark.process

SCRIPT = Path(__file__).parent / "specimens.py"
# By day a checkpoint's manifest and a record of the journal; at night most kinds of files.
SEEDS = [
    {"killed": range(15, 16), "on another machine": range(9, 10)},
    {"killed": range(8), "on another machine": range(4, 12)},
]


@pytest.mark.parametrize("seeds", rest_nightly(1, SEEDS), ids=str)
def test_no_command_fails_badly_whatever_the_files_say(
    tmp_path: Path, seeds: Mapping[str, range]
) -> None:
    tally = Tally()
    findings = play(SCRIPT, tmp_path, seeds, tally, jobs=2, deadline_s=120)
    assert tally.mutations == sum(map(len, seeds.values()))
    assert not findings, "\n".join(map(str, findings))
