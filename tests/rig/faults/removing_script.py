"""Mounts a folder of the user's inside an experiment, and lets `rm` refuse it."""

from __future__ import annotations

import sys
from pathlib import Path

from holdfast.cli import main
from tests.rig.mounts import bind

TREE, PLACE = map(Path, sys.argv[1:])
trial = next(path.parent for path in TREE.glob("*/params.json"))
bind(PLACE, trial)
assert main(["rm", "--yes", "--local", str(TREE)]) != 0
assert (trial / "weights").read_text() == "mine"
print("KEPT")
