"""Pickles users' objects, and names the part that cannot be pickled."""

from __future__ import annotations

import functools
import inspect
import io
import pickle
import sys
from collections import ChainMap
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from types import CellType, CodeType
from typing import Any, ClassVar, Final

from holdfast.forked import children_end_here
from holdfast.runtime.objects import pickled
from holdfast.text.errors import named
from holdfast.trial.errors import TuneError
from holdfast.trial.values import Opaque, Path, fold_values, key_name, replace_leaves

# The names of the script's module: its own, and that in a process which `multiprocessing` has
# started by importing the script again.
SCRIPT: Final = frozenset({"__main__", "__mp_main__"})
# An attribute of the functions that `with_parameters` makes: the variable that has the parameters.
PARAMETERS: Final = "_holdfast_parameters"
_DEPTH = 4
_NO_FILE = "<dynamic-code>"


def cell_content(cell: CellType) -> Any:
    """The value of a closure's variable; None if it is not bound yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


class NotPicklable(TuneError, TypeError):
    """A user's object cannot be pickled for a worker process; the message names the faulty
    part."""


def dumps(value: object, what: str) -> bytes:
    """Pickle `value` with cloudpickle; classes and functions of the script are pickled by value.

    Raises NotPicklable, naming the innermost attribute, closure variable or key that fails.
    """
    made = io.BytesIO()
    try:
        with children_end_here():
            _pickler()(made).dump(value)
    except Exception as error:  # a user's __reduce__ may raise anything
        path, culprit = culprit_of(value, what)
        part = "it" if path == what else path.removeprefix(f"{what}: ")
        raise NotPicklable(
            f"{what} cannot be sent to a worker process: {part} is a "
            f"{type(culprit).__qualname__} and cannot be pickled ({named(error)}). "
            f"Create it inside the function, or in setup()"
        ) from error
    return made.getvalue()


@functools.cache
def _pickler() -> Any:
    """cloudpickle's, which keeps the names of files: cloudpickle 3.1.3 removes them from code, and
    a traceback would not say where the user's function failed."""
    import cloudpickle

    main = sys.modules["__main__"]
    if main.__name__ != "__main__":  # the script, which `multiprocessing` has imported again
        cloudpickle.register_pickle_by_value(main)
    reduced = cloudpickle.Pickler.dispatch_table[CodeType]

    def reduce_code(code: CodeType) -> tuple[Any, ...]:
        make, args = reduced(code)
        # A copy, as cloudpickle makes of names: its bytes depend on no interning.
        name = "".join(code.co_filename)
        return make, tuple(
            name if isinstance(one, str) and one == _NO_FILE else one for one in args
        )

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
        dispatch_table: ClassVar[Any] = ChainMap(
            {CodeType: reduce_code}, cloudpickle.Pickler.dispatch_table
        )

    return Pickler


def loads(pickled: bytes) -> Any:
    """Unpickle what `dumps` returned. Runs the code that the pickle names."""
    return pickle.loads(pickled)


def users_config(
    config: Mapping[str, Any], param_space: Mapping[str, Any], *, trusted: bool = True
) -> dict[str, Any]:
    """A trial's config as the user wrote it, with objects in place of their references.

    Unpickles the results of the user's own search, so call it only where the user's code runs.
    Raises TuneError for such a value unless `trusted`.
    """

    def load(path: Path, leaf: Any) -> Any:
        if not isinstance(leaf, Opaque):
            return leaf
        if not trusted:
            raise TuneError(
                f"{key_name(path)} is pickled in the journal, but trusted=False unpickles nothing"
            )
        return loads(leaf.pickled)

    found: dict[str, Any] = replace_leaves(fold_values(config, param_space), load)
    return found


def culprit_of(value: object, path: str, depth: int = _DEPTH) -> tuple[str, object]:
    """The innermost part that cannot be pickled on its own, and its path."""
    if depth:
        for name, part in parts_of(value):
            if not pickles(part):
                return culprit_of(part, f"{path}{name}", depth - 1)
    return path, value


def pickles(value: object) -> bool:
    """True if `dumps` can pickle it."""
    import cloudpickle

    try:
        cloudpickle.dumps(value)
    except Exception:  # whatever the error, the answer is no
        return False
    return True


def pickled_size(value: object) -> int:
    """About how many bytes a pickle of it takes; 0 if it cannot be pickled. Copies no arrays."""
    try:
        with children_end_here():
            return pickled(value).file_bytes
    except Exception:  # whatever the error, no pickle takes any bytes
        return 0


def parts_of(value: object) -> Iterator[tuple[str, Any]]:
    """What an object consists of, each with its place in it: `['data']`, `: the global 'x'`."""
    if inspect.isfunction(value):
        names = inspect.getclosurevars(value)
        bound = getattr(value, PARAMETERS, "")
        for kind, found in (("variable", names.nonlocals), ("global", names.globals)):
            for name, part in found.items():
                if name == bound:
                    yield from (
                        (f": with_parameters({key}=...)", one) for key, one in part.items()
                    )
                else:
                    yield f": the {kind} {name!r}", part
        for at, default in enumerate(value.__defaults__ or ()):
            yield f": default {at}", default
    elif inspect.isclass(value):
        for name, part in vars(value).items():
            if inspect.isfunction(part) or not name.startswith("__"):
                yield f".{name}", part
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield f"[{key!r}]", part
    elif isinstance(value, (list, tuple)):
        for at, part in enumerate(value):
            yield f"[{at}]", part
    elif hasattr(value, "__dict__"):
        for name, part in vars(value).items():
            yield f".{name}", part
    elif is_dataclass(value):
        for field in fields(value):
            yield f".{field.name}", getattr(value, field.name)
