"""`runtime_env` as far as it needs the machine: the directory, and the script's own process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from holdfast.trial.errors import InvalidConfig
from holdfast.trial.runtime_env import RuntimeEnv

# What of it an experiment keeps, for a restore to ask for: names, never values.
NAMES = "env_vars"
HAS_WORKING_DIR = "working_dir"


def located(environment: RuntimeEnv, *, where: str) -> RuntimeEnv:
    """The same with an absolute `working_dir`. Raises InvalidConfig if there is none."""
    given = environment.working_dir
    if given is None:
        return environment
    path = os.path.abspath(os.path.expanduser(given))
    if not os.path.isdir(path):
        wrong = "is no directory" if os.path.exists(path) else "does not exist"
        raise InvalidConfig(f"{where}: working_dir {path!r} {wrong}")
    if not os.access(path, os.R_OK | os.X_OK):
        raise InvalidConfig(f"{where}: working_dir {path!r} cannot be read by this user")
    return replace(environment, working_dir=path)


def kept_of(environment: RuntimeEnv) -> dict[str, Any]:
    """What the journal has of it: the names of the variables, and whether there is a directory."""
    kept: dict[str, Any] = {}
    if environment.env_vars:
        kept[NAMES] = sorted(environment.env_vars)
    if environment.working_dir is not None:
        kept[HAS_WORKING_DIR] = True
    return kept


def check_given_again(kept: Mapping[str, Any], environment: RuntimeEnv) -> None:
    """Raises InvalidConfig where an experiment would go on without what it began with.

    A variable that the script's own environment has is there.
    """
    missing = environment.missing(kept.get(NAMES, []), os.environ)
    gone = [f"the variable {name}" for name in missing]
    if kept.get(HAS_WORKING_DIR) and environment.working_dir is None:
        gone.append("the working_dir")
    if gone:
        raise InvalidConfig(
            f"the experiment began with a runtime_env, of which no file keeps the values, and "
            f"this restore lacks {', '.join(gone)}: give it again, in "
            f"restore(..., runtime_env={{...}}) or in holdfast.init(runtime_env={{...}}), or set "
            f"the variables in the environment of this script"
        )


@contextmanager
def applied_here(environment: RuntimeEnv) -> Iterator[None]:
    """The variables and the import path, in this process: for a trial in the debug mode."""
    before = {name: os.environ.get(name) for name in environment.env_vars}
    path = list(sys.path)
    os.environ.update(environment.env_vars)
    if environment.working_dir is not None:
        sys.path.insert(0, environment.working_dir)
    try:
        yield
    finally:
        sys.path[:] = path
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
