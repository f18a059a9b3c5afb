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


def complete_experiment(
    prefix: str, parsed_args: argparse.Namespace, **_: object
) -> Iterator[str]:
    """Experiments, and folders that may contain some; and the names that `ls` has printed, or
    would print."""
    yield from _folders(prefix, only_experiments=not prefix)
    if "/" not in prefix:
        root = getattr(parsed_args, "root", None)
        yield from (name for name in _known_names(root) if name.startswith(prefix))


def _known_names(root: str | None) -> Iterator[str]:
    """The names in the places where names are looked for."""
    from holdfast.experiment.folder.shell import read_listed

    for place in _places(root):
        found = _folders(f"{place}/", only_experiments=True)
        yield from (path.removeprefix(f"{place}/") for path in found)
    for listed in read_listed(os.environ) if root is None else ():
        if "://" in listed.place:
            yield from listed.names


def _places(root: str | None) -> list[str]:
    """The folders of this machine in which names are looked for."""
    from holdfast.experiment.folder.shell import read_listed

    environ = os.environ
    only = root or environ.get("HOLDFAST_ROOT")
    usual = environ.get("RAY_STORAGE") or environ.get("RAY_AIR_LOCAL_CACHE_DIR")
    several = [usual or "~/ray_results", *(listed.place for listed in read_listed(environ))]
    places = [only] if only else several
    found = (os.path.expanduser(place).rstrip("/") for place in places if "://" not in place)
    return list(dict.fromkeys(found))


def complete_trial(prefix: str, parsed_args: argparse.Namespace, **_: object) -> Iterator[str]:
    """The trial ids of the experiment that is named before; the folder of a trial whose folder the
    user's code has named."""
    named = getattr(parsed_args, "path", "") or ""
    place = os.path.expanduser(named)
    if "/" not in named and not os.path.isdir(f"{named}/journal"):
        found = (f"{one}/{named}" for one in _places(getattr(parsed_args, "root", None)))
        place = next(filter(os.path.isdir, found), place)
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
