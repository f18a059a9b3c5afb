"""tuner.pkl: the user's own objects, each pickled in a field of its own, loaded only when used."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.syncer.durable import write_atomic
from holdfast.trial.errors import TuneError

_FORMAT = 1


class BrokenTunerFile(TuneError):
    """tuner.pkl is missing, cut off or changed; the message says what to give to restore()."""


def write(path: Path, fields: Mapping[str, bytes]) -> None:
    """A pickle of a plain dict of bytes, with a checksum over them."""
    kept = dict(fields)
    data = {"format": _FORMAT, "crc32": _checksum(kept), "fields": kept}
    write_atomic(path, pickle.dumps(data))


class TunerFile:
    """What a restore may take from tuner.pkl."""

    def __init__(self, path: Path) -> None:
        """Raises BrokenTunerFile."""
        self._path = path
        try:
            # A file of this machine that holds nothing but a dict of bytes: what is in them is
            # unpickled by `load`, field by field.
            data = pickle.loads(path.read_bytes())
            self._fields: dict[str, bytes] = data["fields"]
            whole = data["crc32"] == _checksum(self._fields)
        except FileNotFoundError as error:
            raise BrokenTunerFile(f"{path} is not there: {_ADVICE}") from error
        except Exception as error:  # pickle raises nearly anything for broken bytes
            raise BrokenTunerFile(f"{path} cannot be read ({error}): {_ADVICE}") from error
        if not whole:
            raise BrokenTunerFile(f"{path} was changed, its checksum is wrong: {_ADVICE}")

    def load(self, name: str) -> Any:
        """The object of a field, None where there is none. Raises BrokenTunerFile."""
        import cloudpickle

        pickled = self._fields.get(name)
        if pickled is None:
            return None
        try:
            return cloudpickle.loads(pickled)
        except Exception as error:  # the user's own classes may have moved or changed
            raise BrokenTunerFile(
                f"{name} in {self._path} cannot be loaded here ({type(error).__name__}: {error}): "
                f"{_ADVICE}"
            ) from error


_ADVICE = "give the trainable (and param_space) to Tuner.restore(path, trainable, param_space=...)"


def _checksum(fields: Mapping[str, bytes]) -> int:
    crc = 0
    for name in sorted(fields):
        crc = zlib.crc32(fields[name], zlib.crc32(name.encode(), crc))
    return crc
