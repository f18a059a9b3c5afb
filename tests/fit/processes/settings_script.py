"""A script that makes settings for its process, before and after the import of holdfast, or in
its trials.

`settings_script.py STORAGE ANSWER [NAME...]`: the names are those of settings for trials.
"""

import os
import sys
from typing import Any

arguments, names = sys.argv[1:], os.environ.get("TEST_PROCESS_SETTINGS", "").split(",")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import process_settings  # type: ignore[import-not-found]  # noqa: E402

from holdfast import tune  # noqa: E402


def train(config: dict[str, Any]) -> None:
    """Pickled by value, as most functions of scripts are; its process imports the module."""
    process_settings.train(config)


if __name__ == "__main__":
    storage, answer, *in_trials = arguments
    for name in filter(None, names):
        process_settings.make(name)
    tuner = tune.Tuner(
        train,
        param_space={"set": tune.grid_search(in_trials)} if in_trials else {},
        tune_config=tune.TuneConfig(max_concurrent_trials=2),
        run_config=tune.RunConfig(name="run", storage_path=storage),
    )
    wrong = [
        (one.config, str(one.error))
        for one in tuner.fit()
        if one.error or (one.metrics or {}).get("i") != 1 or one.checkpoint is None
    ]
    descriptor = os.open(answer, os.O_WRONLY | os.O_CREAT, 0o600)
    os.write(descriptor, str(wrong).encode())
