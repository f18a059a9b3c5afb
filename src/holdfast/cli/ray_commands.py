"""Performs `holdfast ray`."""

from __future__ import annotations

import argparse

from holdfast.ray_names.running import run_script
from holdfast.trial.errors import InvalidConfig


def perform(given: argparse.Namespace) -> int:
    """Returns the exit code, unless this process becomes the script. Raises InvalidConfig."""
    words = given.words if given.module is None else ["-m", *given.module]
    if not words or words == ["-m"]:
        raise InvalidConfig("holdfast ray needs a script: holdfast ray script.py ARGUMENTS")
    run_script(words)
