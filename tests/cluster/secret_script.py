"""A user's script with secrets. Each trial marks that it runs, and waits while the test looks.

The file that is named on the command line has the storage, whose URI has credentials, the
variables of the runtime_env, and the token of each agent.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import tempfile
from pathlib import Path
from typing import Any

import holdfast
from holdfast import tune
from tests.rig.script import mark, wait_at

GIVEN: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())


def token_of_an_agent(size: int) -> bytes:
    """In place of random bytes of its length: a token that the test can look for."""
    planted: bytes = GIVEN["token"].encode()
    return planted if len(planted) == size else os.urandom(size)


def train(config: dict[str, Any]) -> None:
    mark("holds", os.environ["TRACKER_TOKEN"])
    wait_at("looked")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "weights").write_text("light")
        tune.report({"loss": 1}, checkpoint=tune.Checkpoint.from_directory(folder))


if __name__ == "__main__":
    vars(secrets)["token_bytes"] = token_of_an_agent
    holdfast.init(runtime_env={"env_vars": GIVEN["env_vars"]})
    results = tune.Tuner(
        tune.with_resources(train, {"cpu": 1}),
        param_space={"number": tune.grid_search([0, 1])},
        run_config=tune.RunConfig(storage_path=GIVEN["storage"], name="run"),
    ).fit()
    assert [result.error for result in results] == [None, None]
