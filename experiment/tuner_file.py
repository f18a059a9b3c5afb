"""tuner.pkl: the user's own objects, each pickled in a field of its own, loaded only when used.

The trainable of a training on several workers is in trainer.pkl, of the same form.
"""

from __future__ import annotations

import io
import pickle
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.experiment.layout import TRAINER
from holdfast.syncer.durable import write_atomic
from holdfast.syncer.regular import read_regular
from holdfast.trial.errors import TuneError

_FORMAT = 1
EXTENDED = "extended"


def numbered(name: str, number: int) -> str:
    """The field of what a restore has put in the place of `name`, which is number 0."""
    return f"{name}-{number}" if number else name


class BrokenTunerFile(TuneError):
    """Something that is needed of tuner.pkl cannot be had: `fault` says why, and the message what
    to do."""

    def __init__(self, fault: str, advice: str) -> None:
        super().__init__(f"{fault}: {advice}")
        self.fault = fault

    def __reduce__(self) -> tuple[type[BrokenTunerFile], tuple[str, str]]:
        return type(self), (self.fault, str(self).removeprefix(f"{self.fault}: "))


def write(path: Path, fields: Mapping[str, bytes]) -> None:
    """A pickle of a plain dict of bytes, with a checksum over them."""
    kept = dict(fields)
    data = {"format": _FORMAT, "crc32": _checksum(kept), "fields": kept}
    write_atomic(path, pickle.dumps(data))


class _PlainUnpickler(pickle.Unpickler):
    """Knows no class and no function, so that a file from elsewhere can have nothing called."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        raise pickle.UnpicklingError(
            f"it names {module_name}.{global_name}, and may only hold data"
        )


class TunerFile:
    """What a restore may take from tuner.pkl, and from trainer.pkl beside it.

    `fault` says what is wrong with the files as a whole, "" for nothing: it may be that nothing in
    them is needed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fields: dict[str, bytes] = {}
        self.fault = ""
        self._read(path)
        self._own = dict(self._fields)
        trainer = path.with_name(TRAINER)
        if trainer.exists() and not self.fault:
            self._read(trainer)

    def _read(self, path: Path) -> None:
        try:
            # Nothing but a dict of bytes is taken from it: what is in them is unpickled by `load`,
            # field by field.
            data = _PlainUnpickler(io.BytesIO(read_regular(path))).load()
            fields: dict[str, bytes] = data["fields"]
            if data["crc32"] == _checksum(fields):
                self._fields |= fields
            else:
                self.fault = f"{path} was changed, its checksum is wrong"
        except FileNotFoundError:
            self.fault = f"{path} is not there"
        except Exception as error:  # pickle raises nearly anything for broken bytes
            self.fault = f"{path} cannot be read ({type(error).__name__}: {error})"

    @property
    def is_extended(self) -> bool:
        """Whether a restore may have changed the experiment: the journal knows."""
        return bool(self.fault) or EXTENDED in self._own

    def extend(self, more: Mapping[str, bytes]) -> None:
        """Add fields to tuner.pkl, and leave those that are there: until the journal names the new
        ones, a restore goes on with the former.

        Raises BrokenTunerFile, and OSError where it cannot be written.
        """
        if self.fault:
            raise BrokenTunerFile(
                self.fault,
                "an experiment is extended with a whole file only. Put a copy of it in its place: "
                "remote storage has one beside the journal",
            )
        write(self._path, {**self._own, **more, EXTENDED: b""})

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
                f"{name} in {self._path} cannot be loaded here ({type(error).__name__}: {error})",
                _advice([name]),
            ) from error

    def load_trainable(self) -> Any:
        """Raises BrokenTunerFile, also where there is none: it is in trainer.pkl, or could not be
        pickled."""
        if "trainable" not in self._fields:
            fault = f"there is no trainable in {self._path}, and no trainer.pkl beside it"
            raise BrokenTunerFile(fault, _advice(["trainable"]))
        return self.load("trainable")

    def require(self, names: Sequence[str]) -> None:
        """Raises BrokenTunerFile where the file is no good and one of these is to be had of it."""
        if self.fault and names:
            raise BrokenTunerFile(self.fault, _advice(names))


def _advice(names: Sequence[str]) -> str:
    """What helps where `names` cannot be had of the file."""
    names = [name.partition("-")[0] for name in names]
    given = [name for name in names if name in _GIVEN]
    if not given:
        return (
            f"restore() cannot be given another {names[0]}. Let it find what that needs as fit() "
            f"did (the same directory, modules and packages), or put a copy of the file in its "
            f"place: remote storage has one beside the journal. What was reported can be read "
            f"without it: tune.ExperimentAnalysis(path)"
        )
    call = "Tuner.restore(path, trainable, param_space=...)"
    if given == ["trainable"]:
        call = "Tuner.restore(path, trainable), or holdfast resume --trainable MODULE:NAME"
    told = " and ".join(_GIVEN[name] for name in given)
    return f"give {told} to restore(), as the experiment began with: {call}"


_GIVEN = {"trainable": "the trainable", "param_space": "param_space"}


def _checksum(fields: Mapping[str, bytes]) -> int:
    crc = 0
    for name in sorted(fields):
        crc = zlib.crc32(fields[name], zlib.crc32(name.encode(), crc))
    return crc
