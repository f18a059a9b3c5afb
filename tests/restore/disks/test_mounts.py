"""What is mounted inside an experiment is not its own: nothing that removes crosses it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rig.mounts import in_own_mounts, needs_mounts

SCRIPT = Path(__file__).parent / "mounting_script.py"


@needs_mounts
@pytest.mark.parametrize("how", ["bind", "tmpfs"])
def test_retention_a_restore_gc_and_rm_leave_what_is_mounted_and_name_it(
    tmp_path: Path, how: str
) -> None:
    assert in_own_mounts(SCRIPT, tmp_path, how).endswith("DONE\n")
