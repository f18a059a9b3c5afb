"""The names of experiments in the arguments."""

from __future__ import annotations

import argparse
import os


def settle(given: argparse.Namespace) -> None:
    """Replace the name of an experiment by its path. Raises ExperimentNotFound, InvalidConfig,
    InvalidLocation, StorageError."""
    if not hasattr(given, "root"):
        return
    if given.path is not None:
        given.path = named_path(given.path, given)
    if hasattr(given, "paths"):
        given.paths = [named_path(path, given) for path in given.paths]


def named_path(text: str, given: argparse.Namespace) -> str:
    """The path of an experiment that may be named. Raises as `settle`."""
    from holdfast.experiment.browse.catalog import path_of

    return path_of(text, given.root, os.environ)
