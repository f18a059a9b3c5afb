"""A user's script whose trials run on agents of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.bench import Bench, workbench

USER_SCRIPT = Path(__file__).parent.parent / "restore" / "user_script.py"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """Two agents with one CPU each, and a script for them that is not edited."""
    with workbench(tmp_path, USER_SCRIPT) as made:
        made.environ["HOLDFAST_CLUSTER"] = "local://?agents=2&cpus_per_node=1"
        yield made
