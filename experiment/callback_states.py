"""What callbacks gave to `get_state`: a file of its own, each state pickled by itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgpack

from holdfast.experiment.pickling import dumps, loads
from holdfast.syncer.durable import write_atomic
from holdfast.syncer.regular import read_regular

_FORMAT = 1


def write(path: Path, states: Mapping[str, Any]) -> None:
    """Raises OSError, and NotPicklable naming the callback and the part at fault."""
    pickled = {
        name: dumps(state, f"what {name}.get_state() returned") for name, state in states.items()
    }
    write_atomic(path, msgpack.packb({"format": _FORMAT, "states": pickled}))


def read(path: Path) -> dict[str, bytes]:
    """The pickled states by the callbacks' names; empty where there are none.

    Raises ValueError for a file that is damaged or from another version.
    """
    try:
        data = msgpack.unpackb(read_regular(path))
    except FileNotFoundError:
        return {}
    if not isinstance(data, dict) or data.get("format") != _FORMAT:
        raise ValueError("not a file of this version of holdfast")
    states: dict[str, bytes] = data["states"]
    return states


def load(pickled: bytes) -> Any:
    """Called only with the state of a callback that is there again: it is the user's code."""
    return loads(pickled)
