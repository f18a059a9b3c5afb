"""One mechanism for everything that comes from a file, a bucket or a socket.

Records, snapshots, files of state and messages are frozen dataclasses, and the annotations of
their fields are the format: `Count`, `Moment`, `PlainName`, literals, enums, other such classes. A
field without a bound holds what both MessagePack and JSON can: integers of 64 bits and finite
floats. `to_fields` and `to_row` make plain data of such a class. `decode` and `Messages.read` make
the class of plain data, and refuse what does not fit, with the name of the class and of the field.

A checksum proves that the bytes are as written, not that they are valid: another version or
another program may have written them. So each field's type, range and nesting are checked. The
code is compiled for each class, because a restore may decode a million reports; with the checks
it is still faster than `dataclass.__init__`.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from holdfast.dataclass import dataclass
from holdfast.errors import TuneError
from holdfast.names import folder_name, listed, node_name, plain_name, printable, shown


class UnreadableRecord(TuneError, ValueError):
    """A record, a file or a message that this version of holdfast cannot read.

    The text names the record, the field and the value.
    """


# The last second of the year 9999, the latest that `datetime` supports.
LATEST_S = 253_402_300_799.0


@dataclass(frozen=True, slots=True)
class Between:
    """A number from `low` to `high`, both included. NaN is outside."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Checked:
    """A value that `check(value, name)` returns; it raises ValueError for any other."""

    check: Callable[[Any, str], Any]


@dataclass(frozen=True, slots=True)
class Stored:
    """A value that looks different in a record.

    `read` makes the value from plain data and raises ValueError, TypeError or KeyError; `write`
    makes plain data from the value (None: the value is plain). With `of`, `read` is given what a
    field of that type holds.
    """

    read: Callable[[Any], Any]
    write: Callable[[Any], Any] | None = None
    of: Any = None


class _Mark:
    """A marker without a value, compared by identity."""


T = TypeVar("T")
SPARSE: Final = _Mark()
# A field that a record has only if its value is not the default, as in most records.
Sparse = Annotated[T, SPARSE]
# A number of things, or the index of one.
Count = Annotated[int, Between(0, 1 << 53)]
# An index up to which a restore loops, such as that of a trial's newest checkpoint.
Ordinal = Annotated[int, Between(0, 10_000_000)]
# Seconds since 1970.
Moment = Annotated[float, Between(0, LATEST_S)]
# A limit; infinity means no limit.
Limit = Annotated[float, Between(-math.inf, math.inf)]
PlainName = Annotated[str, Checked(plain_name)]
# The name of a node; "" for the controller's machine.
NodeName = Annotated[str, Checked(node_name)]
FolderName = Annotated[str, Checked(folder_name)]

INTEGER = Between(-(1 << 63), (1 << 64) - 1)
FINITE = Between(-1.7976931348623157e308, 1.7976931348623157e308)


def in_words(bound: Between, *, whole: bool) -> str:
    """The values that `bound` allows, in words for an error message."""
    kind = "a whole number" if whole else "a number"
    if bound == INTEGER:
        return f"{kind} of at most 64 bits"
    if bound == FINITE:
        return f"a finite {kind[2:]}"
    if bound == Between(-math.inf, math.inf):
        return kind
    return f"{kind} from {bound.low:,} to {bound.high:,}"


# Readers of JSON and MessagePack fail at 500 to 1,000; a marked value takes two levels.
DEEPEST = 100
LEAVES = frozenset({type(None), bool, int, float, str, bytes})
_KEYS = LEAVES - {bytes}


class WrongField(ValueError):
    """A value that its field cannot hold; the message names the field and shows the value."""


def wrong(name: str, value: Any, words: str) -> WrongField:
    return WrongField(f"{name} must be {words}, not {shown(value)}")


def check_plain(value: Any, name: str, depth: int = DEEPEST) -> Any:
    """Return `value` if it is plain data that is nested at most `depth` levels deep.

    Raises WrongField.
    """
    kind = type(value)
    if kind in LEAVES:
        return value
    if not depth:
        raise WrongField(f"{name} is nested deeper than holdfast writes")
    if kind is dict:
        for key, item in value.items():
            if type(key) not in _KEYS:
                raise WrongField(f"{name} has the key {shown(key)}, which JSON cannot represent")
            if type(item) not in LEAVES:
                check_plain(item, name, depth - 1)
        return value
    if kind is list:
        for item in value:
            if type(item) not in LEAVES:
                check_plain(item, name, depth - 1)
        return value
    raise WrongField(f"{name} has {shown(value)}, which JSON cannot represent")


def check_table(value: Any, name: str) -> Any:
    """Return `value` if it is a dict of plain data whose keys are text. Raises WrongField."""
    if type(value) is not dict:
        raise wrong(name, value, "a table of names and values")
    for key, item in value.items():
        if type(key) is not str:
            raise WrongField(f"{name} has the key {shown(key)}, which is not text")
        if type(item) not in LEAVES:
            check_plain(item, name, DEEPEST - 1)
    return value


Write = Callable[[Any], Any]
_FIELD_WRITERS: dict[type, Write] = {}
_ROW_WRITERS: dict[type, Write] = {}


def to_fields(value: Any) -> dict[str, Any]:
    """The fields of a dataclass as a dict of plain values."""
    write = _FIELD_WRITERS.get(type(value))
    if write is None:
        write = _FIELD_WRITERS[type(value)] = _compile_writer(type(value), is_row=False)
    plain: dict[str, Any] = write(value)
    return plain


def to_row(value: Any) -> list[Any]:
    """The fields of a dataclass as a list of plain values, in order."""
    write = _ROW_WRITERS.get(type(value))
    if write is None:
        write = _ROW_WRITERS[type(value)] = _compile_writer(type(value), is_row=True)
    plain: list[Any] = write(value)
    return plain


def _compile_writer(kind: type, *, is_row: bool) -> Write:
    """Compile a literal, which takes a quarter of the time of an attrgetter and a `zip`."""
    hints = get_type_hints(kind, include_extras=True)
    scope = {f"write_{one.name}": writer_of(hints[one.name]) for one in fields(kind)}
    values = {
        name: f"write_{name}(value.{name})" if scope[f"write_{name}"] else f"value.{name}"
        for name in (one.name for one in fields(kind))
    }
    if is_row:
        row: Write = eval(f"lambda value: [{', '.join(values.values())}]", scope)
        return row
    items = ", ".join(f"{name!r}: {value}" for name, value in values.items())
    made: Write = eval(f"lambda value: {{{items}}}", scope)
    sparse = {one.name: one.default for one in fields(kind) if _is_sparse(hints[one.name])}
    return _without(made, sparse) if sparse else made


def _is_sparse(hint: Any) -> bool:
    return get_origin(hint) is Annotated and SPARSE in get_args(hint)


def _without(write: Write, defaults: Mapping[str, Any]) -> Write:
    """Leave out the fields that have these values."""

    def trimmed(value: Any) -> dict[str, Any]:
        plain: dict[str, Any] = write(value)
        for name, default in defaults.items():
            if plain[name] == default:
                del plain[name]
        return plain

    return trimmed


def writer_of(hint: Any) -> Write | None:
    """A function that makes a value of this type plain; None if such values already are."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        notes = (note for note in parts[1:] if isinstance(note, Stored))
        form = next(notes, None)
        return writer_of(parts[0]) if form is None else form.write
    if origin in (Union, types.UnionType):
        several = [write for part in parts if (write := writer_of(part)) is not None]
        return _write_optional(several[0]) if several else None
    if origin is set:
        return sorted
    if origin in (tuple, Sequence):
        inner = writer_of(parts[0])
        return _write_each(inner) if inner is not None else list if origin is tuple else None
    if origin in (Mapping, dict):
        inner = writer_of(parts[1])
        return None if inner is None else _write_table(inner)
    return to_fields if is_dataclass(hint) else None


def _write_optional(write: Write) -> Write:
    return lambda value: None if value is None else write(value)


def _write_each(write: Write) -> Write:
    return lambda value: [write(item) for item in value]


def _write_table(write: Write) -> Write:
    return lambda value: {key: write(item) for key, item in value.items()}


def evolver(kind: type[T], *changing: str) -> Callable[..., T]:
    """A function that works like `dataclasses.replace`, for a frozen dataclass with slots.

    `replace` reads the fields from the class, fills a dict and calls an `__init__` that must
    bypass the frozen `__setattr__`: 6 µs for the 22 fields of a Trial. This function fills an
    object of a class with the same slots that is not frozen, and then changes the object's class:
    1.3 µs. Calling each slot's descriptor would take twice as long. With `changing`, exactly these
    fields must be passed, which saves a test per field. No `__post_init__` is called.
    """
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    if changing:
        given = [*changing]
        values = {name: name if name in changing else f"old.{name}" for name in names}
    else:
        given = [f"{name}=SAME" for name in names]
        values = {name: f"old.{name} if {name} is SAME else {name}" for name in names}
    return _filled(kind, f"old, *, {', '.join(given)}", values)


def maker(kind: type[T]) -> Callable[..., T]:
    """A constructor for a frozen dataclass with slots, which takes all fields by name. It works
    like `evolver`, in a third of the time of the class's `__init__`."""
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    return _filled(kind, f"*, {', '.join(names)}", dict(zip(names, names, strict=True)))


def _filled(kind: type[T], parameters: str, values: dict[str, str]) -> Callable[..., T]:
    """A function of `parameters` that makes a `kind`; `values` has an expression per field."""
    twin = type(f"{kind.__name__}Twin", (), {"__slots__": tuple(values)})
    source = [
        f"def fill({parameters}):",
        " new = MAKE(TWIN)",
        *(f" new.{name} = {value}" for name, value in values.items()),
        " new.__class__ = KIND",  # in capitals, because a field may have the name `kind`
        " return new",
    ]
    scope: dict[str, Any] = {"SAME": object(), "MAKE": object.__new__, "KIND": kind, "TWIN": twin}
    exec("\n".join(source), scope)
    fill: Callable[..., T] = scope["fill"]
    return fill


_SHOWN_NAMES = 12
_SHOWN_CHARS = 400
_ABSENT = "is missing"

Decode = Callable[[Any], Any]
# The fields by name: the type, and a `Field` with the default.
Fields = Mapping[str, tuple[Any, Field[Any]]]
_COMPILED: dict[type, Decode] = {}
_COMPILED_ROWS: dict[type, Decode] = {}


def decode(kind: type, plain: Any) -> Any:
    """Make a `kind` from a dict of its fields. Raises UnreadableRecord."""
    return _of_class(kind)(plain)


def decode_row(kind: type, plain: Any) -> Any:
    """Make a `kind` from a list of all its fields, in order. Raises UnreadableRecord."""
    known = _COMPILED_ROWS.get(kind)
    if known is None:
        # With the first one: all kinds of messages would delay the first report by 4 ms.
        known = _COMPILED_ROWS[kind] = _compile(kind, is_row=True)
    return known(plain)


class Messages:
    """The messages that one end of a connection may send.

    Each is a list of all fields of a class, in order. The first is `name`: it tells which class.
    """

    def __init__(self, kinds: Mapping[str, type]) -> None:
        self._kinds = kinds

    def find(self, message: list[Any]) -> Any:
        """The message as an object of its class; None if none has the name that it begins with.
        Raises UnreadableRecord."""
        name = message[0] if message else None
        kind = self._kinds.get(name) if type(name) is str else None
        return None if kind is None else decode_row(kind, message)

    def read(self, message: list[Any]) -> Any:
        """The message as an object of its class. Raises UnreadableRecord."""
        if (found := self.find(message)) is None:
            raise UnreadableRecord(f"unknown message {shown(message[0] if message else message)}")
        return found


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
    scope[f"c{at}"] = converter(hint, name)
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


def _bounded(hint: Any) -> tuple[Any, Between | Checked | Stored | None]:
    if get_origin(hint) is Annotated:
        base, *notes = get_args(hint)
        bounds = (note for note in notes if isinstance(note, (Between, Checked, Stored)))
        return base, next(bounds, None) or _bounded(base)[1]
    return hint, INTEGER if hint is int else FINITE if hint is float else None


def converter(hint: Any, name: str) -> Decode:
    """A function that converts a value for a field of this type and name, or raises ValueError."""
    if hint is Any:
        return lambda value: check_plain(value, name)
    base, bound = _bounded(hint)
    if isinstance(bound, Stored):
        return _stored(bound, name)
    if isinstance(bound, Checked):
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
    return _truth(name) if base is bool else _of_type(name, base)


def _stored(form: Stored, name: str) -> Decode:
    if form.of is None:
        return form.read
    convert = converter(form.of, name)
    return lambda value: form.read(convert(value))


def _of_type(name: str, kind: type) -> Decode:
    words = "text" if kind is str else f"a {kind.__name__}"

    def convert(value: Any) -> Any:
        if type(value) is not kind:
            raise wrong(name, value, words)
        return value

    return convert


def _truth(name: str) -> Decode:
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
    several = [converter(part, name) for part in get_args(hint) if part is not types.NoneType]

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
    inner = converter(kind, name)

    def convert(value: Any) -> Any:
        check_table(value, name)
        return {key: inner(item) for key, item in value.items()}

    return convert


def _row(kind: Any, name: str, made: Callable[[Iterable[Any]], Any]) -> Decode:
    inner = converter(kind, name)

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
