"""`put` and `get`: large values that the trials of a script share and read without a copy.

An object lives as long as the process that put it, or until `shutdown()` there. Files of an
experiment hold only a token for it, never the object itself.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import astuple, field, fields
from importlib import import_module
from typing import Any, Final, overload

from holdfast.dataclass import dataclass
from holdfast.experiment.user_objects.pickling import NotPicklable, culprit_of, pickled_size
from holdfast.forked import close_in_children
from holdfast.runtime import objects
from holdfast.syncer.files.durable import boot_id
from holdfast.trial.errors import TuneError
from holdfast.trial.space import Categorical, grid_values
from holdfast.trial.values import Path, key_name

# About 10 ms to write, and seconds to upload on a slow line.
LARGE_BYTES: Final = 10_000_000


class ObjectLost(TuneError, LookupError):
    """The object no longer exists; the message says which process put it, and what to do."""


class ObjectStoreFull(TuneError, OSError):
    """No folder for objects has enough room; nothing of the object is left."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ObjectRef:
    """A reference to an object of `put`. It is small, can be pickled, and is equal to its copies.

    `kind` is the name of the object's type, `size_bytes` the size of its file, `owner` the process
    that put it, on the machine whose boot is `boot`. `packages` are imported before the workers
    that will read it are forked.
    """

    path: str = field(compare=False)
    id: str
    kind: str = field(compare=False)
    size_bytes: int = field(compare=False)
    owner: int = field(compare=False)
    boot: str = field(compare=False)
    packages: tuple[str, ...] = field(compare=False, default=())

    def hex(self) -> str:
        """The unique id of this object."""
        return self.id

    def __repr__(self) -> str:
        return f"ObjectRef({self.id}: {self.kind}, {self.size_bytes:,} bytes)"

    def __reduce__(self) -> tuple[Any, ...]:
        _note_reference(self)
        # Pickled as a function call with plain values, so that the class may change.
        return reference, astuple(self)


_FIELDS = tuple(found.name for found in fields(ObjectRef))


def reference(*values: Any) -> ObjectRef:
    """The function in a pickled reference; the arguments are the fields of an ObjectRef in their
    order."""
    ref = ObjectRef(**dict(zip(_FIELDS, values, strict=False)))
    _note_reference(ref)
    return ref


class _OwnObjects:
    """The objects that this process has put. Several threads may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._object_folder: objects.ObjectFolder | None = None

    def put(self, name: str, value: objects.Pickled) -> str:
        with self._lock:
            if self._object_folder is None:
                self._begin()
            assert self._object_folder is not None
            return self._object_folder.put(name, value)

    def close(self) -> None:
        with self._lock:
            if self._object_folder is not None:
                self._object_folder.close()
                self._object_folder = None
                atexit.unregister(self.close)

    def _begin(self) -> None:
        objects.remove_abandoned(os.environ)
        self._object_folder = objects.ObjectFolder(os.environ)
        atexit.register(self.close)
        close_in_children(self)

    def close_in_child(self) -> None:
        """Called in a forked child, which has put nothing yet."""
        self._lock = threading.Lock()
        if self._object_folder is not None:
            self._object_folder.forsake()
            self._object_folder = None
            atexit.unregister(self.close)


_own = _OwnObjects()


def put(value: Any) -> ObjectRef:
    """Store `value` where every worker can read it with `get`; return a reference to it.

    NumPy arrays, Arrow tables and pandas frames, also inside other values, are stored as they are
    and read without a copy. The object exists until `holdfast.shutdown()` or the end of this
    process: inside a trial, of its worker.

    Raises NotPicklable, ObjectStoreFull, and TypeError for a reference.
    """
    if isinstance(value, ObjectRef):
        raise TypeError(f"{value!r} is already a reference: pass it on as it is")
    try:
        pickled = objects.pickled(value)
    except Exception as error:  # a user's __reduce__ may raise anything
        part, culprit = culprit_of(value, "the value")
        raise NotPicklable(
            f"put() cannot store this: {part} is a {type(culprit).__qualname__} and cannot be "
            f"pickled ({type(error).__name__}: {error}). Put what it is made from, and create it "
            f"in the trial"
        ) from error
    try:
        return _stored(value, pickled)
    except objects.NoRoom as error:
        raise ObjectStoreFull(
            error.errno,
            f"put() has no room for this {type(value).__qualname__}: {error.strerror}. Let "
            f"{objects.FOLDER} name a folder with more room, or let holdfast.shutdown() "
            f"remove what was put before",
        ) from error


def _stored(value: Any, pickled: objects.Pickled) -> ObjectRef:
    """A reference to the value, in a new file. Raises OSError."""
    import secrets

    name = secrets.token_hex(8)
    path = _own.put(name, pickled)
    return ObjectRef(
        path=path,
        id=name,
        kind=type(value).__qualname__,
        size_bytes=pickled.file_bytes,
        owner=os.getpid(),
        boot=boot_id(),
        packages=pickled.packages,
    )


@overload
def get(object_refs: ObjectRef, *, timeout: float | None = None) -> Any: ...
@overload
def get(object_refs: list[ObjectRef], *, timeout: float | None = None) -> list[Any]: ...
def get(object_refs: ObjectRef | list[ObjectRef], *, timeout: float | None = None) -> Any:
    """The object, or the objects of a list. Arrays in it are read-only views.

    There is nothing to wait for, so `timeout` has no effect.

    Raises ObjectLost, TypeError for anything but references, and whatever the object's own class
    raises when it is rebuilt.
    """
    if isinstance(object_refs, (list, tuple)):
        return [get(ref) for ref in object_refs]
    if not isinstance(object_refs, ObjectRef):
        raise TypeError(
            f"get() takes a reference of put(), or a list of them, not {object_refs!r:.100}"
        )
    return _read(object_refs)


def _read(ref: ObjectRef, *, is_own: bool = False) -> Any:
    try:
        return objects.read(_path_here(ref), is_own=is_own)
    except FileNotFoundError as error:
        raise ObjectLost(_why_lost(ref)) from error
    except (OSError, objects.BadObject) as error:
        raise ObjectLost(f"{ref!r} cannot be read: {error}. {_ADVICE}") from error


class Parameters(dict[str, Any]):
    """The values that `with_parameters` binds to a trainable; `large` are the names of large ones.

    A large value is in no pickle of them, but in an object as of `put`. The process that workers
    are forked from reads it once, and they share its memory until they write to it.
    """

    def __init__(self, values: Mapping[str, Any], large: Iterable[str]) -> None:
        super().__init__(values)
        self.large = tuple(large)
        self._refs: dict[str, ObjectRef] = {}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Parameters:
        return cls(
            values, [name for name, one in values.items() if pickled_size(one) >= LARGE_BYTES]
        )

    def __reduce__(self) -> tuple[Any, ...]:
        refs = {name: ref for name in self.large if (ref := self._ref(name)) is not None}
        return parameters, ({name: self[name] for name in self if name not in refs}, refs)

    def _ref(self, name: str) -> ObjectRef | None:
        """The object of this value; None if no folder has room for it."""
        known = self._refs.get(name)
        if known is None or not os.path.exists(known.path):
            try:
                self._refs[name] = _stored(self[name], objects.pickled(self[name]))
            except objects.NoRoom:
                return None
        return self._refs[name]


def parameters(small: Mapping[str, Any], refs: Mapping[str, ObjectRef]) -> Parameters:
    """The function in pickled Parameters. Raises ObjectLost."""
    large = {name: _read(ref, is_own=True) for name, ref in refs.items()}
    return Parameters({**small, **large}, large)


# The folder on a node of a cluster with the copies of the script's objects.
_copies: list[str] = []


def use_copies(folder: str) -> None:
    """From now on, read the script's objects in this process from their copies in `folder`."""
    _copies[:] = [folder]


def _path_here(ref: ObjectRef) -> str:
    """The object's file on this machine."""
    if _copies and not os.path.exists(ref.path):
        return os.path.join(_copies[0], ref.id)
    return ref.path


def free_all() -> None:
    """Remove the objects that this process has put."""
    _own.close()


def remove_abandoned() -> None:
    """Remove the objects of processes that were killed."""
    objects.remove_abandoned(os.environ)


_ADVICE = (
    "put() the value once more and use the new reference; a restored experiment takes it with "
    "Tuner.restore(path, trainable, param_space=...), with_parameters() with a new trainable"
)


def _why_lost(ref: ObjectRef) -> str:
    if _copies:
        return (
            f"{ref!r} is not on this node, which has the objects that the trainable and "
            f"param_space named when fit() began. put() the value before fit(), or let the trial "
            f"make it"
        )
    if ref.boot != boot_id():
        whose = "on another machine, or before this one was rebooted"
    elif ref.owner == os.getpid():
        whose = "by this process, and holdfast.shutdown() has removed it"
    else:
        whose = f"by process {ref.owner}, which has ended or called holdfast.shutdown()"
    return f"{ref!r} is gone: it was put {whose}. {_ADVICE}"


# -- references that go to the trials -----------------------------------------------------------

_collecting = threading.local()


@contextmanager
def collecting_references() -> Iterator[list[ObjectRef]]:
    """Collect the references that this thread pickles or unpickles inside the block."""
    before = getattr(_collecting, "found", None)
    found: list[ObjectRef] = []
    _collecting.found = found
    try:
        yield found
    finally:
        _collecting.found = before


def _note_reference(ref: ObjectRef) -> None:
    found = getattr(_collecting, "found", None)
    if found is not None:
        found.append(ref)


def import_packages(refs: Iterable[ObjectRef]) -> None:
    """Import packages in the parent of workers, so that all workers have them and share the
    memory."""
    for name in sorted({name for ref in refs for name in ref.packages}):
        with suppress(ImportError):  # the trial that needs it raises it
            import_module(name)


def check_exist(refs: Iterable[ObjectRef], param_space: Mapping[str, Any]) -> None:
    """Raises ObjectLost if a reference that trials would get is gone."""
    lost = [ref for ref in dict.fromkeys(refs) if not os.path.exists(ref.path)]
    if lost:
        places = {ref: key_name(path) for path, ref in references_in(param_space)}
        where = [places.get(ref, "the trainable") for ref in lost]
        named = "param_space" if lost[0] in places else "the trainable"
        raise ObjectLost(f"{', '.join(dict.fromkeys(where))} of {named}: {_why_lost(lost[0])}")


def references_in(space: Any, path: Path = ()) -> Iterator[tuple[Path, ObjectRef]]:
    """The references in a search space, also in grids and choices."""
    if isinstance(space, ObjectRef):
        yield path, space
        return
    if isinstance(space, Categorical):
        space = list(space.categories)
    elif values := grid_values(space):
        space = list(values)
    if isinstance(space, Mapping):
        for key, value in space.items():
            yield from references_in(value, (*path, key))
    elif isinstance(space, (list, tuple)):
        for at, value in enumerate(space):
            yield from references_in(value, (*path, at))
