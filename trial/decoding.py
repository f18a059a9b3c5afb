"""Decodes plain data into frozen dataclasses and checks every value against its annotation.

A checksum proves that the bytes are as written, not that they are valid: another version or
another program may have written them. So each field's type, range and nesting are checked. A
decoder is compiled for each class, because a restore may decode a million reports; with the checks
it is still faster than `dataclass.__init__`.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from holdfast.names import printable, shown
from holdfast.trial.bounds import FINITE, INTEGER, Between, Named, Stored, in_words
from holdfast.trial.errors import UnreadableRecord
from holdfast.trial.evolving import maker
from holdfast.trial.plain import check_plain, check_table, wrong
from holdfast.trial.readable import listed

_SHOWN_NAMES = 12
_SHOWN_CHARS = 400
_ABSENT = "is missing"

Decode = Callable[[Any], Any]
# The fields by name: the type, and a `Field` with the default.
Fields = Mapping[str, tuple[Any, Field[Any]]]
_COMPILED: dict[type, Decode] = {}


def decode(kind: type, plain: Any) -> Any:
    """Make a `kind` from a dict of its fields. Raises UnreadableRecord."""
    return _of_class(kind)(plain)


def row_decoder(kind: type) -> Decode:
    """A decoder that makes a `kind` from a list of all its fields, in order. It raises
    UnreadableRecord."""
    return _compile(kind, is_row=True)


def _of_class(kind: type) -> Decode:
    known = _COMPILED.get(kind)
    if known is None:
        known = _COMPILED[kind] = _compile(kind)
    return known


def _compile(kind: type, *, is_row: bool = False) -> Decode:
    hints = get_type_hints(kind, include_extras=True)
    several = {field.name: (hints[field.name], field) for field in fields(kind) if field.init}
    # Errors name the class, or the file that users know.
    title = getattr(kind, "shown_as", kind.__name__)
    make = kind if _checks_itself(kind) else maker(kind)
    return table_decoder(title, several, make, is_row=is_row)


def table_decoder(
    title: str, several: Fields, make: Callable[..., Any], *, is_row: bool = False
) -> Decode:
    """A decoder that checks the fields of a dict (or a row: a list of all values in order) against
    their types and calls `make` with them.

    It uses only the default of each `Field`. Messages of UnreadableRecord begin with `title`.
    """
    scope: dict[str, Any] = {
        "KIND": title,
        "NAMES": frozenset(several),
        "MISSING": MISSING,
        "ABSENT": _ABSENT,
        "refuse": _refuse,
        "refuse_names": _refuse_names,
        "refuse_row": _refuse_row,
        "make": make,
    }
    table = [
        " if type(plain) is not dict or not plain.keys() <= NAMES:",
        "  refuse_names(KIND, plain, NAMES)",
        " get = plain.get",
    ]
    row = [
        f" if type(plain) is not list or len(plain) != {len(several)}:",
        "  refuse_row(KIND, plain, NAMES)",
        f" {', '.join(f'v{at}' for at in range(len(several)))}, = plain",
    ]
    body = ["def decode(plain):", *(row if is_row else table), " name = ''", " try:"]
    for at, (name, (hint, field)) in enumerate(several.items()):
        body.append(f"  name = {name!r}")
        step = "if" if is_row else _get(at, name, field, scope, body)
        body += _check(at, name, hint, step, scope)
    arguments = ", ".join(f"{name}=v{at}" for at, name in enumerate(several))
    body += [
        "  name = ''",
        f"  return make({arguments})",
        " except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:",
        "  refuse(KIND, name, error)",
    ]
    exec("\n".join(body), scope)
    made: Decode = scope["decode"]
    return made


def _checks_itself(kind: type) -> bool:
    """Whether objects must be made by the class's own `__init__`: it has no slots, or a
    `__post_init__` that checks more than the annotations say."""
    checks = hasattr(kind, "__post_init__") and not getattr(kind, "annotations_say_all", False)
    return checks or not getattr(kind, "__slots__", ())


def _get(at: int, name: str, field: Field[Any], scope: dict[str, Any], body: list[str]) -> str:
    """Generate code that reads a field into the variable `v<at>`. Returns the keyword, `if` or
    `elif`, that the field's check begins with."""
    body.append(f"  v{at} = get({name!r}, MISSING)")
    default = _default(at, field, scope)
    absent = "raise KeyError(ABSENT)" if default is None else f"v{at} = {default}"
    body.append(f"  if v{at} is MISSING: {absent}")
    return "if" if default is None else "elif"


def _check(at: int, name: str, hint: Any, step: str, scope: dict[str, Any]) -> list[str]:
    """Generate code that checks the variable `v<at>` and converts it."""
    condition = _fits(hint, f"v{at}")
    scope[f"c{at}"] = _converter(hint, name)
    test = "True" if condition is None else f"not ({condition})"
    lines = []
    if get_origin(_bounded(hint)[0]) in (Sequence, tuple) and not _is_stored(hint):
        lines.append(f"  {step} type(v{at}) is list and not v{at}: v{at} = ()")  # most are empty
        step = "elif"
    return [*lines, f"  {step} {test}: v{at} = c{at}(v{at})"]


def _is_stored(hint: Any) -> bool:
    return isinstance(_bounded(hint)[1], Stored)


def _default(at: int, field: Field[Any], scope: dict[str, Any]) -> str | None:
    """The expression for the default; None if the field has none."""
    if field.default_factory is not MISSING:
        scope[f"d{at}"] = field.default_factory
        return f"d{at}()"
    if field.default is not MISSING:
        scope[f"d{at}"] = field.default
        return f"d{at}"
    return None


def _fits(hint: Any, value: str) -> str | None:
    """An expression that is true if the value needs no conversion; None if it always does."""
    if hint is Any:
        return None
    base, bound = _bounded(hint)
    if base is int and isinstance(bound, Between):
        return f"type({value}) is int and {bound.low!r} <= {value} <= {bound.high!r}"
    if base is float and isinstance(bound, Between) and "inf" not in repr(bound):
        return f"type({value}) is float and {bound.low!r} <= {value} <= {bound.high!r}"
    if get_origin(base) is Literal:
        return f"type({value}) is str and {value} in {get_args(base)!r}"
    if base in (str, bool) and bound is None:
        return f"type({value}) is {base.__name__}"
    options = get_args(base) if get_origin(base) in (Union, types.UnionType) else ()
    if options and types.NoneType in options:
        return f"{value} is None"
    return None


def _bounded(hint: Any) -> tuple[Any, Between | Named | Stored | None]:
    if get_origin(hint) is Annotated:
        base, *notes = get_args(hint)
        bounds = (note for note in notes if isinstance(note, (Between, Named, Stored)))
        return base, next(bounds, None) or _bounded(base)[1]
    return hint, INTEGER if hint is int else FINITE if hint is float else None


def _converter(hint: Any, name: str) -> Decode:
    """A function that converts a value for the field, or raises ValueError."""
    if hint is Any:
        return lambda value: check_plain(value, name)
    base, bound = _bounded(hint)
    if isinstance(bound, Stored):
        return _stored(bound, name)
    if isinstance(bound, Named):
        return lambda value: bound.check(value, name)
    if isinstance(bound, Between):
        return _number(name, base, bound)
    origin = get_origin(base)
    if origin in (Union, types.UnionType):
        return _optional(base, name)
    if origin in (Mapping, dict):
        return _table(get_args(base)[1], name)
    if origin in (Sequence, tuple, set):
        return _row(get_args(base)[0], name, set if origin is set else tuple)
    if origin is Literal:
        return _literal(name, get_args(base))
    if isinstance(base, type) and issubclass(base, Enum):
        return _one_of(name, base)
    if is_dataclass(base):
        return _of_class(base)  # type: ignore[arg-type]
    return truth(name) if base is bool else _of_type(name, base)


def _stored(form: Stored, name: str) -> Decode:
    if form.of is None:
        return form.read
    convert = _converter(form.of, name)
    return lambda value: form.read(convert(value))


def _of_type(name: str, kind: type) -> Decode:
    words = "text" if kind is str else f"a {kind.__name__}"

    def convert(value: Any) -> Any:
        if type(value) is not kind:
            raise wrong(name, value, words)
        return value

    return convert


def truth(name: str) -> Decode:
    """A bool. Users may pass 1, 0 or None for one, and journals record it as given."""

    def convert(value: Any) -> bool:
        if type(value) not in (bool, int, types.NoneType) or value not in (0, 1, None):
            raise wrong(name, value, "true or false")
        return bool(value)

    return convert


def _one_of(name: str, kind: type[Enum]) -> Decode:
    members = {str(member.value): member for member in kind}

    def convert(value: Any) -> Any:
        if type(value) is kind:  # in a snapshot that has not been serialized
            return value
        if type(value) is not str or value not in members:
            raise wrong(name, value, f"one of {', '.join(members)}")
        return members[value]

    return convert


def _literal(name: str, options: tuple[str, ...]) -> Decode:
    def convert(value: Any) -> Any:
        if type(value) is not str or value not in options:
            raise wrong(name, value, f"one of {', '.join(options)}")
        return value

    return convert


def _number(name: str, kind: type, bound: Between) -> Decode:
    accepted = (int,) if kind is int else (int, float)

    def convert(value: Any) -> Any:
        if type(value) not in accepted or not bound.low <= value <= bound.high:
            raise wrong(name, value, in_words(bound, whole=kind is int))
        return value

    return convert


def _optional(hint: Any, name: str) -> Decode:
    several = [_converter(part, name) for part in get_args(hint) if part is not types.NoneType]

    *others, last = several

    def convert(value: Any) -> Any:
        if value is None:
            return None
        for other in others:
            try:
                return other(value)
            except (ValueError, TypeError, KeyError):
                continue
        return last(value)

    return convert


def _table(kind: Any, name: str) -> Decode:
    if kind is Any:
        return lambda value: check_table(value, name)
    inner = _converter(kind, name)

    def convert(value: Any) -> Any:
        check_table(value, name)
        return {key: inner(item) for key, item in value.items()}

    return convert


def _row(kind: Any, name: str, made: Callable[[Iterable[Any]], Any]) -> Decode:
    inner = _converter(kind, name)

    def convert(value: Any) -> Any:
        if type(value) not in (list, tuple):
            raise wrong(name, value, "a list")
        return made(inner(item) for item in value)

    return convert


def _refuse(kind: str, name: str, error: Exception) -> None:
    if isinstance(error, UnreadableRecord):
        raise error
    fact = str(error)
    if isinstance(error, KeyError):
        fact = f"{name} {error.args[0]}" if error.args == (_ABSENT,) else f"{error} is missing"
    elif isinstance(error, RecursionError):
        fact = f"{name} is nested too deeply"
    elif not fact.startswith(name):
        fact = f"{name}: {fact}"
    # From None: the message says everything, and a traceback would show only holdfast's code.
    raise UnreadableRecord(f"{kind}: {printable(fact[:_SHOWN_CHARS])}") from None


def _refuse_names(kind: str, plain: Any, names: frozenset[str]) -> None:
    if type(plain) is not dict:
        raise UnreadableRecord(f"{kind} must be a table of fields, not {shown(plain)}")
    unknown = [shown(name) for name in plain if name not in names]
    raise UnreadableRecord(
        f"{kind} has fields that this version of holdfast does not know: "
        f"{listed(unknown, _SHOWN_NAMES)}. A newer version wrote them, or the data is "
        "damaged"
    )


def _refuse_row(kind: str, plain: Any, names: frozenset[str]) -> None:
    raise UnreadableRecord(f"{kind} must be a list of {len(names)} values, not {shown(plain)}")
