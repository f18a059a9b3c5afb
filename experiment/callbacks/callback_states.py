"""The file with the states of callbacks; each state is pickled separately."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgpack

from holdfast.experiment.user_objects.pickling import dumps, loads
from holdfast.names import shown
from holdfast.syncer.files.durable import write_atomic
from holdfast.syncer.stores.plain_files import read_small

_FORMAT = 2


def write(path: Path, states: Mapping[str, Any]) -> None:
    """Write the states. Raises OSError, and NotPicklable naming the callback and the faulty
    part."""
    pickled = {
        name: dumps(state, f"the return value of {name}.get_state()")
        for name, state in states.items()
    }
    kept = {"format": _FORMAT, "crc32": _checksum(pickled), "states": pickled}
    write_atomic(path, msgpack.packb(kept))


def read(path: Path) -> dict[str, bytes]:
    """The pickled states by the callbacks' names; empty if there is no file.

    Raises ValueError for a file that is damaged or from another version, and OSError.
    """
    try:
        plain = msgpack.unpackb(read_small(path))
    except FileNotFoundError:
        return {}
    except (TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"not MessagePack ({error!r:.200})") from error
    found = plain.get("format") if type(plain) is dict else None
    if found != _FORMAT:
        raise ValueError("not a file of this version of holdfast")
    states: dict[str, bytes] = plain.get("states")
    if type(states) is not dict or not all(
        type(name) is str and type(state) is bytes for name, state in states.items()
    ):
        raise ValueError(f"its states must map callback names to bytes, not {shown(states)}")
    if plain.get("crc32") != _checksum(states):
        raise ValueError("its checksum is wrong: it was changed")
    return states


def load(pickled: bytes) -> Any:
    """Unpickle a state. Runs the user's code, so call it only for a callback that is passed
    again."""
    return loads(pickled)


def _checksum(states: Mapping[str, bytes]) -> int:
    crc = 0
    for name in sorted(states):
        crc = zlib.crc32(states[name], zlib.crc32(name.encode(), crc))
    return crc
