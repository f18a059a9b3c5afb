"""Completions for a shell: the experiments and trials on this machine.

Reads only the names of folders, so that the shell has an answer within a tenth of a second.
Storage elsewhere is not asked.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator

_TRIAL = re.compile(r"_([0-9a-f]{5}_\d{5,})_")


def shell_code(shell: str) -> str:
    """The script that makes a shell call this command for completions."""
    from argcomplete.shell_integration import shellcode

    code: str = shellcode(["holdfast"], shell=shell)
    return code


def complete_place(prefix: str, **_: object) -> Iterator[str]:
    """Folders."""
    return _folders(prefix, only_experiments=False)


def complete_experiment(prefix: str, **_: object) -> Iterator[str]:
    """Experiments, and folders that may contain some.

    If nothing is typed yet and there are none here: those in the directory where `fit()` keeps
    them.
    """
    found = list(_folders(prefix, only_experiments=not prefix))
    usual = os.environ.get("RAY_STORAGE") or os.environ.get("RAY_AIR_LOCAL_CACHE_DIR")
    if not found and not prefix and "://" not in (usual or ""):
        place = os.path.expanduser(usual or "~/ray_results")
        found = list(_folders(f"{place.rstrip('/')}/", only_experiments=True))
    return iter(found)


def complete_trial(prefix: str, parsed_args: argparse.Namespace, **_: object) -> Iterator[str]:
    """The trial ids of the experiment that is named before; the folder of a trial whose folder the
    user's code has named."""
    place = os.path.expanduser(getattr(parsed_args, "path", "") or "")
    for name in _names(place):
        known = _TRIAL.search(name)
        trial = known[1] if known else name
        is_trial = known or os.path.exists(f"{place}/{name}/params.json")
        if is_trial and trial.startswith(prefix):
            yield trial


def _folders(prefix: str, *, only_experiments: bool) -> Iterator[str]:
    above, _, begun = os.path.expanduser(prefix).rpartition("/")
    place = f"{above}/" if "/" in prefix else ""
    for name in _names(place or "."):
        folder = f"{place}{name}"
        if not name.startswith(begun) or name.startswith(".") or not os.path.isdir(folder):
            continue
        if os.path.isdir(f"{folder}/journal"):
            yield folder
        elif not only_experiments:
            yield f"{folder}/"


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []  # no such folder: no completions
