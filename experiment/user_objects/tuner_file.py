"""tuner.pkl: the user's objects, one per field, loaded only when they are used.

A field is plain data as far as possible; the user's own objects in it are pickled
(`holdfast.experiment.user_objects.stored_objects`). The file is MessagePack. The trainable of a
training on several workers is in trainer.pkl, which has the same format. One field is a digest of
the trainable's code, which tells a restore whether it has changed.
"""

from __future__ import annotations

import functools
import hashlib
import struct
import sys
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any, Final

import msgpack

from holdfast.experiment.folder.layout import TRAINER
from holdfast.experiment.folder.shell import holdfast_command
from holdfast.experiment.user_objects.pickling import SCRIPT, cell_content
from holdfast.experiment.user_objects.stored_objects import (
    NeedsTrust,
    StoredField,
    restored,
)
from holdfast.syncer.files.durable import write_atomic
from holdfast.syncer.stores.store import read_small
from holdfast.text.errors import named
from holdfast.trial.errors import TuneError

_MAGIC: Final = b"HFTUNR\0\2"
_FRAME: Final = struct.Struct("<IQ")  # CRC-32 and length of the body
_MOST_BYTES: Final = 1 << 33
EXTENDED = "extended"
# True if `import ray` meant holdfast in the script (`holdfast.compat.ray_path`).
RAY_NAMES = "ray_names"


def numbered(name: str, number: int) -> str:
    """The field of version `number` of `name`: each restore may add one; 0 is the original."""
    return f"{name}-{number}" if number else name


class BrokenTunerFile(TuneError):
    """A needed part of tuner.pkl cannot be loaded: `fault` says why, the message also what to
    do."""

    def __init__(self, fault: str, advice: str) -> None:
        super().__init__(f"{fault}: {advice}")
        self.fault = fault

    def __reduce__(self) -> tuple[type[BrokenTunerFile], tuple[str, str]]:
        return type(self), (self.fault, str(self).removeprefix(f"{self.fault}: "))


class NotTrusted(BrokenTunerFile):
    """A restore with `trusted=False` needs a pickled object: the message says what to pass
    instead."""


def write(path: Path, fields: Mapping[str, StoredField]) -> None:
    """Write the file: eight bytes, a frame, and MessagePack with the parts of each field."""
    body: bytes = msgpack.packb({name: _parts(field) for name, field in fields.items()})
    write_atomic(path, _MAGIC + _FRAME.pack(zlib.crc32(body), len(body)) + body)


def _parts(field: StoredField) -> dict[str, Any]:
    given = {"plain": field.plain, "objects": field.objects, "pickled": field.pickled}
    return {name: part for name, part in given.items() if part is not None}


def read(data: bytes) -> dict[str, StoredField]:
    """The fields of a file. Raises ValueError if it is not such a file."""
    if not data.startswith(_MAGIC):
        raise ValueError("it is not a file of this version of holdfast")
    body = memoryview(data)[len(_MAGIC) + _FRAME.size :]
    if len(data) < len(_MAGIC) + _FRAME.size:
        raise ValueError("it is truncated")
    crc, length = _FRAME.unpack_from(data, len(_MAGIC))
    if len(body) < length:
        raise ValueError("it is truncated")
    if zlib.crc32(body) != crc:
        raise ChecksumError
    found = msgpack.unpackb(body, strict_map_key=False)
    if not isinstance(found, dict):
        raise ValueError("it has no fields")
    return {_name(name): _field(parts) for name, parts in found.items()}


class ChecksumError(ValueError):
    """The file has changed since it was written."""


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise ValueError(f"a field is named {name!r:.100}")
    return name


def _field(parts: Any) -> StoredField:
    match parts:
        case {"pickled": bytes(pickled)}:
            return StoredField(pickled=pickled)
        case {"objects": bytes(objects)}:
            return StoredField(plain=parts.get("plain"), objects=objects)
        case dict() if parts.keys() <= {"plain"}:
            return StoredField(plain=parts.get("plain"))
    raise ValueError("a field is neither plain nor pickled")


class TunerFile:
    """The objects in tuner.pkl, and in trainer.pkl next to it, for a restore.

    `fault` says what is wrong with the files, "" for nothing; it matters only if an object is
    needed. Unless the files are `trusted`, nothing is unpickled.
    """

    def __init__(self, path: Path, *, trusted: bool = True) -> None:
        self._path = path
        self._trusted = trusted
        self._passed: Mapping[str, Any] = {}
        self._fields: dict[str, StoredField] = {}
        self.fault = ""
        self._read(path)
        self._own = dict(self._fields)
        trainer = path.with_name(TRAINER)
        if trainer.exists() and not self.fault:
            self._read(trainer)

    def _read(self, path: Path) -> None:
        try:
            self._fields |= read(read_small(path, _MOST_BYTES))
        except ChecksumError:
            self.fault = f"{path} was changed: its checksum is wrong"
        except FileNotFoundError:
            self.fault = f"{path} is missing"
        except Exception as error:  # pickle raises nearly anything for broken bytes
            self.fault = f"{path} cannot be read ({named(error)})"

    @property
    def path(self) -> Path:
        return self._path

    @property
    def is_extended(self) -> bool:
        """Whether a restore may have changed the experiment; the journal says whether it has."""
        return bool(self.fault) or EXTENDED in self._own

    @property
    def has_ray_names(self) -> bool:
        """True if the objects refer to modules of holdfast by the names of Ray."""
        field = self._own.get(RAY_NAMES)
        return field is not None and field.plain is True

    def extend(self, more: Mapping[str, StoredField]) -> None:
        """Add fields to tuner.pkl. A restore uses the old ones until the journal names the new
        ones.

        Raises BrokenTunerFile, and OSError if the file cannot be written.
        """
        if self.fault:
            raise BrokenTunerFile(
                self.fault,
                "an experiment can be extended only with an intact file. Replace it with a "
                "copy: remote storage has one next to the journal",
            )
        write(self._path, {**self._own, **more, EXTENDED: StoredField()})

    def load(self, name: str) -> Any:
        """The object of a field; None if there is no such field.

        Raises BrokenTunerFile, or NotTrusted if it would have to be unpickled.
        """
        field = self._fields.get(name)
        if field is None:
            return None
        if name in self._passed and not self._is_plain(name):
            return self._passed[name]
        try:
            return restored(field, trusted=self._trusted)
        except NeedsTrust as error:
            raise NotTrusted(f"{name} in {self._path} is pickled", _PASS_AGAIN) from error
        except Exception as error:  # the user's own classes may have moved or changed
            raise BrokenTunerFile(
                f"{name} in {self._path} cannot be loaded here ({named(error)})",
                _advice([name], self._path),
            ) from error

    def with_objects(self, passed: Mapping[str, Any]) -> TunerFile:
        """A copy that returns these objects instead of unpickling them."""
        twin = copy(self)
        twin._passed = passed
        return twin

    def untrusted(self, given: Collection[str]) -> list[str]:
        """The fields that would have to be unpickled and are not `given`."""
        return [name for name in self._fields if name not in given and not self._is_plain(name)]

    def _is_plain(self, name: str) -> bool:
        try:
            restored(self._fields[name], trusted=False)
        except NeedsTrust:
            return False
        except Exception:  # `load` raises it
            return True
        return True

    def load_trainable(self) -> Any:
        """The trainable, from either file. Raises BrokenTunerFile, also if there is none.

        There is none if trainer.pkl is missing, or if the trainable could not be pickled.
        """
        if "trainable" not in self._fields:
            fault = f"{self._path} has no trainable, and there is no trainer.pkl next to it"
            raise BrokenTunerFile(fault, _advice(["trainable"], self._path))
        return self.load("trainable")

    def require(self, names: Sequence[str]) -> None:
        """Raise BrokenTunerFile if the file is faulty and one of these objects is needed."""
        if self.fault and names:
            raise BrokenTunerFile(self.fault, _advice(names, self._path))


def _advice(names: Sequence[str], path: Path) -> str:
    """What to do if `names` in the file at `path` cannot be loaded."""
    names = [name.partition("-")[0] for name in names]
    given = [name for name in names if name in _GIVEN]
    if not given:
        return (
            f"restore() does not accept another {names[0]}. Make everything that it needs "
            "available as for fit() (the same directory, modules and packages), or replace the "
            "file with a copy: remote storage has one next to the journal. "
            "tune.ExperimentAnalysis(path) reads the results without it"
        )
    call = "Tuner.restore(path, trainable, param_space=...)"
    if given == ["trainable"]:
        words = ("resume", "--trainable", "MODULE:NAME", str(path.parent))
        call = f"Tuner.restore(path, trainable), or {holdfast_command(*words)}"
    wanted = " and ".join(_GIVEN[name] for name in given)
    return f"pass restore() {wanted} that the experiment was started with: {call}"


_PASS_AGAIN = (
    "with trusted=False nothing is unpickled. Pass it to restore(): trainable, param_space=, "
    "tune_config= and run_config= as the experiment was started with"
)
_GIVEN = {"trainable": "the trainable", "param_space": "param_space"}


CODE: Final = "code"
_OURS = __name__.partition(".")[0]


def digest_of(trainable: Any) -> str:
    """A digest of the trainable's functions and of those that they use from the same module; ""
    if it has none.

    It is one of bytecode, so comments do not count. It begins with the version of Python, since
    those of two versions say nothing about each other. A command has one of its words and its
    script.
    """
    if _is_command(trainable):
        parts = hashlib.sha256()
        for content in trainable.holdfast_code():
            parts.update(hashlib.sha256(content).digest())
        return f"command:{parts.hexdigest()[:32]}"
    found = hashlib.sha256()
    functions = list(_functions_of(trainable))
    for function in functions:
        for part in (*_code_parts(function.__code__), _constant(function.__defaults__)):
            found.update(part.encode("utf-8", "surrogatepass") + b"\0")
    return f"{_python()}:{found.hexdigest()[:32]}" if functions else ""


def recorded_code(file: TunerFile) -> dict[str, str]:
    """What tuner.pkl says about the code of the trainable in it: its `digest`, and the `script`
    that has it, as `name_in_script`."""
    try:
        found = None if file.fault else file.load(CODE)
    except BrokenTunerFile:
        return {}
    known = found.items() if isinstance(found, dict) else ()
    return {name: value for name, value in known if isinstance(value, str)}


def differ(one: str, other: str) -> bool:
    """Whether two digests are of different code; False if they cannot be compared."""
    if not (one and other):
        return False
    return one.partition(":")[0] == other.partition(":")[0] and one != other


def place_of(trainable: Any) -> str:
    """`train() (train.py:5)`, for messages; "" if not known."""
    if _is_command(trainable):
        return "the command or its script"
    function = next(_functions_of(trainable), None)
    if function is None:
        return ""
    code, file = function.__code__, Path(function.__code__.co_filename).name
    is_class = isinstance(trainable, type)
    name = trainable.__name__ if is_class else f"{function.__name__}()"
    return f"{name} ({file})" if is_class else f"{name} ({file}:{code.co_firstlineno})"


def script_of(trainable: Any) -> Path | None:
    """The script whose code is stored with the trainable; None for a module, whose present code
    runs, and for a notebook."""
    function = next(_functions_of(trainable), None)
    if function is None or function.__globals__.get("__name__") not in SCRIPT:
        return None
    file = Path(function.__code__.co_filename)
    return file if file.suffix == ".py" else None


def name_in_script(trainable: Any) -> str:
    """`train.py:train`, as `holdfast resume --trainable` takes it from the script's folder; "" if
    the script has no such name: the trainable is made in a function, or holds parameters or
    resources."""
    name, script = getattr(trainable, "__qualname__", ""), script_of(trainable)
    is_class = isinstance(trainable, type)
    scope = trainable.__module__ if is_class else getattr(trainable, "__globals__", {})
    is_there = (scope if is_class else scope.get("__name__")) in SCRIPT
    return f"{script.name}:{name}" if script and is_there and name.isidentifier() else ""


def has_changed_in(trainable: Any, script: Path) -> bool:
    """Whether the script's present text defines the trainable otherwise. Runs none of it; False if
    it cannot be read."""
    try:
        whole = compile(script.read_bytes(), str(script), "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError):
        return False
    present: dict[str, set[tuple[str, ...]]] = {}
    for code in _nested(whole):
        present.setdefault(code.co_qualname, set()).add(tuple(_code_parts(code)))
    own = [function.__code__ for function in _functions_of(trainable)]
    return any(
        tuple(_code_parts(code)) not in present.get(code.co_qualname, ())
        for code in own
        if Path(code.co_filename) == script
    )


def _is_command(trainable: Any) -> bool:
    """True if it is a `tune.CommandTrainable`."""
    return hasattr(type(trainable), "holdfast_code")


def _functions_of(trainable: Any) -> Iterator[FunctionType]:
    """The trainable's own functions, in the order in which the code names them."""
    module, seen, waiting = None, set[int](), [trainable]
    while waiting:
        value = waiting.pop(0)
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, functools.partial):
            waiting += [value.func, *value.args, *value.keywords.values()]
        elif isinstance(value, MethodType):
            waiting += [value.__func__, type(value.__self__)]
        elif isinstance(value, (staticmethod, classmethod)):
            waiting.append(value.__func__)
        elif isinstance(value, property):
            waiting += [value.fget, value.fset]
        elif isinstance(value, FunctionType):
            where = str(value.__globals__.get("__name__"))
            if where.partition(".")[0] != _OURS:
                if where != (module := module or where):
                    continue
                yield value
                waiting += _named_in(value.__code__, value.__globals__)
            waiting.append(value.__dict__.get("__wrapped__"))
            waiting += map(cell_content, value.__closure__ or ())
        elif isinstance(value, type):
            if value.__module__.partition(".")[0] == _OURS:
                waiting += value.__bases__
            elif value.__module__ == (module := module or value.__module__):
                waiting += [*value.__bases__, *(vars(value)[name] for name in sorted(vars(value)))]
        elif callable(value) and value is trainable:
            waiting.append(type(value))


def _named_in(code: CodeType, scope: dict[str, Any]) -> Iterator[Any]:
    for one in _nested(code):
        yield from (scope[name] for name in one.co_names if name in scope)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _code_parts(code: CodeType) -> Iterator[str]:
    """What decides what the code does: everything but names of files and numbers of lines."""
    yield code.co_code.hex()
    yield repr((code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags))
    yield repr((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code_parts(constant)
        else:
            yield _constant(constant)


def _constant(value: Any) -> str:
    """A text of the value without addresses, and in one order for sets."""
    if isinstance(value, tuple):
        return f"({','.join(map(_constant, value))})"
    if isinstance(value, frozenset):
        return f"{{{','.join(sorted(map(_constant, value)))}}}"
    is_plain = value is None or isinstance(value, (bool, int, float, complex, str, bytes))
    return f"{type(value).__name__}:{value!r}" if is_plain else type(value).__name__


def _python() -> str:
    return f"{sys.implementation.cache_tag}-O{sys.flags.optimize}"
