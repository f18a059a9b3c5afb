"""`tests/restore/user_script.py` on a cluster whose workers know nothing of the test: it gives
them what its trials need to talk to the test."""

import os
import runpy
from pathlib import Path

import holdfast
from tests.rig.script import FOLDER, MARKS

holdfast.init(runtime_env={"env_vars": {name: os.environ[name] for name in (FOLDER, MARKS)}})
script = Path(__file__).parent.parent / "restore" / "user_script.py"
runpy.run_path(str(script), run_name="__main__")
