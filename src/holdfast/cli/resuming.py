"""`holdfast resume`: what Tuner.restore(PATH).fit() does in a script, from a shell."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from typing import Any

from holdfast.cli.saying import SOUND, WRONG, say_json
from holdfast.experiment.settings import Settings
from holdfast.trial.errors import InvalidConfig


def resume(given: argparse.Namespace, settings: Settings) -> int:
    """Returns 0, or 1 where a trial failed. Raises as Tuner.restore and fit do."""
    # As `python script.py` has it: the user's modules are looked for from here.
    sys.path.insert(0, os.getcwd())
    from holdfast.experiment.tuner import Tuner

    tuner = Tuner.restore(
        given.path,
        None if given.trainable is None else _named(given.trainable),
        resume_unfinished=not given.skip_unfinished,
        resume_errored=given.resume_errored,
        restart_errored=given.restart_errored,
    )
    results = tuner.fit()
    if given.json:
        from holdfast.experiment.browse.found import find
        from holdfast.experiment.browse.overview import complete

        say_json(complete(find(given.path, settings, os.environ), now=time.time()))
    return WRONG if results.num_errors else SOUND


def _named(text: str) -> Any:
    """The object that `module:name` names. Raises InvalidConfig."""
    module, mark, name = text.partition(":")
    if not (module and mark and name):
        raise InvalidConfig(
            f"--trainable must be module:name, as in train:train_digits; not {text!r}"
        )
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise InvalidConfig(
            f"--trainable {text}: {error}. Modules are looked for in {os.getcwd()} and among what "
            f"is installed"
        ) from error
    return found
