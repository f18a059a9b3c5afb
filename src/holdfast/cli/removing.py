"""`holdfast rm`: shows what goes, asks, and removes it."""

from __future__ import annotations

import argparse
import os
import time
from functools import partial

from holdfast.cli.browse.output import show_entries
from holdfast.cli.printing import SOUND, ask, quoted, say, say_json, show_progress
from holdfast.experiment.folder.settings import Settings
from holdfast.results.removal import Part, Removal, erase, removal
from holdfast.text.values import size

_SHOWN_FILES = 5


def remove(given: argparse.Namespace, settings: Settings) -> int:
    """Returns the exit code. Raises what `removal` and `erase` raise."""
    now = time.time()
    part: Part = "local" if given.local else "storage" if given.storage else "both"
    paths = dict.fromkeys(given.paths)
    removals = [removal(path, part, settings, os.environ, now=now) for path in paths]
    if not given.json:
        _show(removals, now)
    code = ask(given, "Remove this for good?", "nothing is removed")
    if code != SOUND:
        return code
    for one in removals:
        erase(
            one.layout,
            one.remote,
            experiment_id=one.experiment_id,
            known=one.claim,
            progress=partial(show_progress, "objects removed"),
        )
        if not given.json:
            say(f"{one.entry.name} is removed ({size(one.entry.size_bytes or 0)} freed)")
    if given.json:
        say_json({"removed": [one.plain() for one in removals]})
    return SOUND


def _show(removals: list[Removal], now: float) -> None:
    show_entries([one.entry for one in removals], now=now)
    for one in removals:
        say(f"{one.entry.name}:")
        for place, text in _parts(one):
            say(f"  remove {text} in {place}")
        if one.entry.run != 1:
            runs = "runs" if one.entry.run is None else f"{one.entry.run} runs"
            say(f"  this removes all {runs} of this name")
        if one.others:
            more = ", ..." if len(one.others) > _SHOWN_FILES else ""
            names = ", ".join(map(quoted, one.others[:_SHOWN_FILES]))
            say(f"  your own files in the folder go, too: {names}{more}", "yellow")
        if one.entry.problem and one.entry.state.value == "unreadable":
            say(f"  its records cannot be read: {one.entry.problem}", "yellow")
        if one.keeps:
            say(f"  keep {one.keeps}")
        if one.remote is not None and one.remote.kind == "s3":
            say("  a bucket with versioning keeps old versions until a lifecycle rule ends them")


def _parts(one: Removal) -> list[tuple[str, str]]:
    parts = []
    if one.layout is not None:
        parts.append((str(one.layout.root), size(one.bytes_here)))
    if one.remote is not None:
        parts.append((one.remote.public, f"{one.objects} objects, {size(one.bytes_stored)}"))
    return parts
