"""The test rig: scripts that are killed, servers that fail, disks that lose power, and a checker
that shares no code with holdfast.

Tests, benchmarks and the long campaigns (`scripts/faults`, `scripts/mutations`) use it; no wheel
contains it. Start reading at `bench.py` (a user's script on its own machine), `stage.py` (one
scenario of a campaign) and `checker.py` (what must be true of the result).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]

# The processes that it starts, and their children, find it too.
_PATHS = os.environ.get("PYTHONPATH", "").split(os.pathsep)
if str(ROOT) not in _PATHS:
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*_PATHS, str(ROOT)]))
