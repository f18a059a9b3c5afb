"""The code of a trainable: where it is, and a digest that tells whether it has changed."""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any, Final

from holdfast.experiment.user_objects.pickling import SCRIPT
from holdfast.experiment.user_objects.tuner_file import BrokenTunerFile, TunerFile

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
        for part in (*_parts(function.__code__), _constant(function.__defaults__)):
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
        present.setdefault(code.co_qualname, set()).add(tuple(_parts(code)))
    own = [function.__code__ for function in _functions_of(trainable)]
    return any(
        tuple(_parts(code)) not in present.get(code.co_qualname, ())
        for code in own
        if Path(code.co_filename) == script
    )


def _is_command(trainable: Any) -> bool:
    """Whether it is a `tune.CommandTrainable`."""
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
            waiting += [value.__dict__.get("__wrapped__"), *map(_content, value.__closure__ or ())]
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


def _parts(code: CodeType) -> Iterator[str]:
    """What decides what the code does: everything but names of files and numbers of lines."""
    yield code.co_code.hex()
    yield repr((code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags))
    yield repr((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _parts(constant)
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


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not bound yet
        return None


def _python() -> str:
    return f"{sys.implementation.cache_tag}-O{sys.flags.optimize}"
