"""The part of an environment with which storage is opened. It may hold credentials.

It travels to a node inside the connection of its agent, and not in the environment of an engine's
commands, which a cluster may store or show.
"""

from __future__ import annotations

from collections.abc import Mapping

_PREFIXES = ("AWS_", "AZURE_", "GOOGLE_", "GCS_", "FSSPEC_", "RAY_STORAGE")


def of_storage(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in environ.items() if name.startswith(_PREFIXES)}


def without_storage(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in environ.items() if not name.startswith(_PREFIXES)}
