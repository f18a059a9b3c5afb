"""Applies a `runtime_env` on this machine: the directory, and the script's own process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from holdfast.runtime.interpreter import absolute_pythonpath
from holdfast.runtime.threads import changed
from holdfast.trial.config import RuntimeEnv
from holdfast.trial.errors import InvalidConfig

# The parts that an experiment stores, so that a restore can ask for them: names, never values.
NAMES = "env_vars"
HAS_WORKING_DIR = "working_dir"


def located(environment: RuntimeEnv, *, where: str) -> RuntimeEnv:
    """The environment with an absolute `working_dir`. Raises InvalidConfig if it does not
    exist."""
    given = environment.working_dir
    if given is None:
        return environment
    path = os.path.abspath(os.path.expanduser(given))
    if not os.path.isdir(path):
        wrong = "is not a directory" if os.path.exists(path) else "does not exist"
        raise InvalidConfig(f"{where}: working_dir {path!r} {wrong}")
    if not os.access(path, os.R_OK | os.X_OK):
        raise InvalidConfig(f"{where}: working_dir {path!r} cannot be read by this user")
    return replace(environment, working_dir=path)


def kept_of(environment: RuntimeEnv) -> dict[str, Any]:
    """The part in the journal: the names of the variables, and whether there is a directory."""
    kept: dict[str, Any] = {}
    if environment.env_vars:
        kept[NAMES] = sorted(environment.env_vars)
    if environment.working_dir is not None:
        kept[HAS_WORKING_DIR] = True
    return kept


def check_given_again(kept: Mapping[str, Any], environment: RuntimeEnv) -> None:
    """Raises InvalidConfig if the restore lacks parts of the environment that the experiment began
    with.

    A variable counts as present if the script's own environment has it.
    """
    missing = environment.missing(kept.get(NAMES, []), os.environ)
    gone = [f"the variable {name}" for name in missing]
    if kept.get(HAS_WORKING_DIR) and environment.working_dir is None:
        gone.append("the working_dir")
    if gone:
        raise InvalidConfig(
            f"the experiment began with a runtime_env, whose values are stored in no file, and "
            f"this restore lacks {', '.join(gone)}: pass it again, in "
            f"restore(..., runtime_env={{...}}) or in holdfast.init(runtime_env={{...}}), or set "
            f"the variables in the environment of this script"
        )


@contextmanager
def applied_here(environment: RuntimeEnv) -> Iterator[None]:
    """Set the variables and the import path in this process: for a trial in debug mode."""
    variables = environment.env_vars
    variables = {**variables, **absolute_pythonpath({**os.environ, **variables})}
    path = list(sys.path)
    if environment.working_dir is not None:
        sys.path.insert(0, environment.working_dir)
    try:
        with changed(os.environ, variables):
            yield
    finally:
        sys.path[:] = path
