"""The values in a configuration: plain ones, and placeholders for the others.

A configuration in the journal has only plain values. A user's value that is not a number, text or
a container of them is replaced by a `Ref` (its path in `param_space`, which is passed to the
restore again) or by an `Opaque` (pickled bytes, which only the shell unpickles). `to_plain` and
`from_plain` convert a configuration to and from JSON and MessagePack, `readable` for people.
"""

from __future__ import annotations

import base64
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Final

from holdfast.dataclass import dataclass
from holdfast.names import is_utf8, shown
from holdfast.schema import DEEPEST, LEAVES, Stored, check_plain
from holdfast.trial.errors import InvalidSearchSpace
from holdfast.trial.space import INT64, Categorical, Domain, grid_values

Path = tuple[str | int, ...]

_SCALARS: Final = frozenset({type(None), bool, float, bytes})
SETS: Final = frozenset({set, frozenset})
# The largest exponent of a float, and few enough digits (under 640) that Python always converts
# them to text.
READ_BITS: Final = 1023
# A larger set, or a larger dict with keys other than text, is data: it becomes a Ref.
_MOST: Final = 10_000
_UNSAFE: Final = re.compile(r"[^a-zA-Z0-9_.-]+")
_TAG_CHARS: Final = 100
# The key in a trial's config that holds the config of a trainer's loop.
LOOP_CONFIG: Final = "train_loop_config"
_KEY_CHARS: Final = 30
_VALUE_CHARS: Final = 20
# A tag is cut where the next parameter does not fit: a shorter one has all of them.
LONGEST_WHOLE_TAG: Final = _TAG_CHARS - len(",=") - _KEY_CHARS - _VALUE_CHARS


@dataclass(frozen=True, slots=True, kw_only=True)
class Opaque:
    """A user's value as bytes that only the shell unpickles.

    `summary` is a short name for people. `shown` is the value as JSON, as far as it can be read
    without the user's code; None if the summary says the same.
    """

    pickled: bytes
    summary: str
    shown: Any = field(default=None, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ref:
    """A reference to the user's value at `path` in the search space.

    If `path` leads to a grid or a choice, `index` selects one of its values. A number inside
    `path` selects from a list, a grid or a choice. `summary` and `shown` are those of an Opaque.
    """

    path: Path
    index: int | None
    summary: str
    shown: Any = field(default=None, hash=False)


def is_plain(value: object) -> bool:
    """True if `encoding.to_plain` takes `value` and `from_plain` returns an equal one.

    True for None, bool, int, float, UTF-8 text, bytes, and lists, tuples, sets, frozensets and
    dicts of these; false for their subclasses, which would return as the base class.
    """
    try:
        return _is_plain(value)
    except RecursionError:  # contains itself
        return False


def has_text_keys(value: Any) -> bool:
    """True if `value` is a dict whose keys are UTF-8 text, as JSON requires."""
    return type(value) is dict and all(type(key) is str and is_utf8(key) for key in value)


def has_plain_keys(value: Any) -> bool:
    """True if `value` is a dict that is plain if its values are."""
    if has_text_keys(value):
        return True
    return type(value) is dict and len(value) <= _MOST and all(map(_is_key, value))


def unwrap_scalar(value: Any) -> Any:
    """A NumPy scalar as the Python number, bool or text that it holds; other values unchanged."""
    kind = type(value)
    if kind.__module__ != "numpy" or kind.__name__ == "ndarray" or not hasattr(value, "item"):
        return value
    item = value.item()
    return item if is_plain(item) else value


def summarize(value: object, index: int | None = None) -> str:
    """A short name for a value that is not plain. Never its repr, which may contain an address."""
    if isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)):
        return value.__name__
    name = type(value).__name__
    return name if index is None else f"{name}[{index}]"


def in_order(values: Iterable[Any]) -> list[Any]:
    """The members of a set in an order that is the same in every process, numbers first."""
    return sorted(values, key=_rank)


def whole_text(value: int) -> str:
    """An integer in decimal; one that no float can hold is described by its size."""
    bits = value.bit_length()
    return str(value) if bits <= READ_BITS else f"an integer of {bits:,} bits"


def key_name(path: Path) -> str:
    """`net/width`: the name of a place in a configuration, for errors and columns."""
    return "/".join(map(str, path)) or "param_space"


ABSENT: Final = object()


def value_at(config: Any, path: Path) -> Any:
    """The value at this place of nested containers; ABSENT if there is none."""
    for step in path:
        try:
            config = config[step]
        except (LookupError, TypeError):
            return ABSENT
    return config


def replace_leaves(config: Any, convert: Callable[[Path, Any], Any], path: Path = ()) -> Any:
    """A copy of `config` with `convert(path, value)` for each value that is not a list, tuple or
    dict."""
    kind = type(config)
    if kind is dict and has_plain_keys(config):
        return {key: replace_leaves(value, convert, (*path, key)) for key, value in config.items()}
    if kind is list or kind is tuple:
        values = (replace_leaves(v, convert, (*path, i)) for i, v in enumerate(config))
        return list(values) if kind is list else tuple(values)
    return convert(path, kind(config) if kind in SETS else config)


def seal(config: dict[str, Any], pickle: Callable[[Path, Any], Opaque | Ref]) -> dict[str, Any]:
    """`config` with `pickle(path, value)` for each value that is neither plain nor a Ref or
    Opaque."""

    def convert(path: Path, value: Any) -> Any:
        value = unwrap_scalar(value)
        known = isinstance(value, (Ref, Opaque)) or is_plain(value)
        return value if known else pickle(path, value)

    sealed: dict[str, Any] = replace_leaves(config, convert)
    return sealed


def fold_values(config: Any, param_space: Mapping[str, Any]) -> Any:
    """`config` with each Ref replaced by its value. Containers are new; Opaques stay.

    Raises InvalidSearchSpace, naming the key, if `param_space` has no such value.
    """
    return replace_leaves(
        config, lambda path, leaf: _find(path, leaf, param_space) if type(leaf) is Ref else leaf
    )


def flatten(config: Mapping[str, Any]) -> dict[str, Any]:
    """The leaves of `config`, named as in `net/width` and `layers/0`; empty containers stay."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        _flatten_into(flat, str(key), value)
    return flat


def spread(config: Mapping[str, Any], mark: str = "/") -> dict[str, Any]:
    """`config` with nested keys joined by `mark`, as in `net/width`; lists stay as they are."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        if type(value) is dict and value:
            found |= {f"{name}{mark}{key}": item for key, item in spread(value, mark).items()}
        else:
            found[name] = value
    return found


def format_tag(index: int, evaluated: Mapping[str, Any]) -> str:
    """`0_kind=a,lr=0.6176`: a trial's number and varied parameters, safe in a file name.

    Keys are sorted, floats have 4 significant digits, other values are cut at 20 characters.
    Parameters that would make the tag longer than 100 characters are left out. Parameters of a
    trainer's loop have the names that the loop uses.
    """
    tag = f"{index}"
    for key in sorted(evaluated):
        name = _clean(key.removeprefix(f"{LOOP_CONFIG}/"))[-_KEY_CHARS:].lstrip("_")
        pair = f"{name}={_clean(_tag_text(evaluated[key]))[:_VALUE_CHARS]}"
        joined = f"{tag},{pair}" if "=" in tag else f"{tag}_{pair}"
        if len(joined) > _TAG_CHARS:
            break
        tag = joined
    return tag


def named_in_tag(tag: str, index: int, config: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of `config` that the tag names, as in `net/width`.

    A tag is cut at 100 characters: parameters after the cut are not found.
    """
    pairs = frozenset(tag.partition("_")[2].split(","))
    return dict(_named_in(pairs, index, config, ""))


def _named_in(
    pairs: frozenset[str], index: int, config: Mapping[str, Any], prefix: str
) -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        name = f"{prefix}{key}"
        if format_tag(index, {name: value}).partition("_")[2] in pairs:
            yield name, value
        elif isinstance(value, Mapping):
            yield from _named_in(pairs, index, value, f"{name}/")


def changed_tag(tag: str, index: int, before: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """The tag of a trial whose config has changed from `before` to `config`.

    It names the same parameters and the new ones.
    """
    named, known = named_in_tag(tag, index, before), spread(before)
    now = spread(config)
    return format_tag(index, {n: now[n] for n in now if n in named or n not in known})


def _is_plain(value: Any) -> bool:
    kind = type(value)
    if kind in _SCALARS or kind is int:
        return True
    if kind is str:
        return value.isascii() or is_utf8(value)
    if kind is list or kind is tuple:
        return all(map(_is_plain, value))
    if kind in SETS:
        return len(value) <= _MOST and all(map(_is_key, value))
    return has_plain_keys(value) and all(map(_is_plain, value.values()))


def _is_key(value: Any) -> bool:
    kind = type(value)
    if kind is tuple or kind is frozenset:
        return all(map(_is_key, value))
    if kind is int:
        return bool(value.bit_length() <= READ_BITS)
    return kind in _SCALARS or (kind is str and _is_plain(value))


def _rank(value: Any) -> tuple[Any, ...]:
    if isinstance(value, (bool, int, float)):
        return 0, value
    if isinstance(value, str):
        return 1, value
    if isinstance(value, bytes):
        return 2, value
    if isinstance(value, (tuple, list)):
        return 3, tuple(map(_rank, value))
    if isinstance(value, (frozenset, set)):
        return 4, tuple(sorted(map(_rank, value)))
    return 5, type(value).__name__


def _find(path: Path, ref: Ref, param_space: Mapping[str, Any]) -> Any:
    value: Any = param_space
    try:
        for step in ref.path if ref.index is None else (*ref.path, ref.index):
            value = _inside(value)[step]
        if isinstance(value, Domain) or grid_values(value):
            raise LookupError(f"{ref.path} leads to a domain")
    except (LookupError, TypeError) as error:
        raise InvalidSearchSpace(
            f"{key_name(path)}: the configuration uses a {ref.summary} that param_space does not "
            "have; pass restore() the param_space that the experiment was started with"
        ) from error
    return value


def _inside(value: Any) -> Any:
    if isinstance(value, Categorical):
        return value.categories
    if isinstance(value, (dict, list, tuple)):
        return grid_values(value) or value
    raise TypeError(f"cannot look inside a {type(value).__name__}")


def _flatten_into(flat: dict[str, Any], name: str, value: Any) -> None:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            _flatten_into(flat, f"{name}/{key}", item)
    elif isinstance(value, (list, tuple)) and value:
        for i, item in enumerate(value):
            _flatten_into(flat, f"{name}/{i}", item)
    else:
        flat[name] = value


def _tag_text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}".replace("e+", "e")  # some S3 tools read a + in a key as a space
    if isinstance(value, (Ref, Opaque)):
        return value.summary
    if isinstance(value, (list, tuple)):
        return "_".join(map(_tag_text, value))
    if isinstance(value, dict):
        return "_".join(f"{key}_{_tag_text(item)}" for key, item in value.items())
    if type(value) in SETS:
        return "_".join(map(_tag_text, in_order(value)))
    if type(value) is int:
        return whole_text(value)
    return str(value) if is_plain(value) else summarize(value)


def _clean(text: str) -> str:
    return _UNSAFE.sub("_", text).strip("_")


_MARK: Final = "__holdfast__"
_AS_IT_IS: Final = frozenset({type(None), bool, float})


def to_plain(value: Any) -> Any:
    """Convert `value` for JSON and msgpack; types that they lack (a tuple, a Ref) are marked.

    Raises InvalidSearchSpace for a value that cannot be stored.
    """
    return _encode(value, ())


def from_plain(value: Any) -> Any:
    """The inverse of `to_plain`. Raises InvalidSearchSpace for an unknown mark."""
    if isinstance(value, list):
        return [from_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    if _MARK not in value:
        return {
            key: item if type(item) in LEAVES else from_plain(item) for key, item in value.items()
        }
    return _decode_marked(value)


def _encode(value: Any, path: Path) -> Any:
    kind = type(value)
    if kind in _AS_IT_IS:
        return value
    if kind is list:
        return _each(value, path)
    if kind is tuple:
        return _marked("tuple", items=_each(value, path))
    if has_text_keys(value):
        encoded = {key: _encode(item, (*path, key)) for key, item in value.items()}
        return _marked("dict", items=encoded) if _MARK in value else encoded
    if kind is Ref:
        named = _marked("ref", path=list(value.path), index=value.index, summary=value.summary)
        return named | _shown(value, path)
    if kind is Opaque:
        carried = _marked("opaque", base64=_to_text(value.pickled), summary=value.summary)
        return carried | _shown(value, path)
    if has_plain_keys(value):
        pairs = ([_encode(key, path), _encode(item, (*path, key))] for key, item in value.items())
        return _marked("dict", pairs=list(pairs))
    if is_plain(value):
        return _encode_plain(value, path)
    raise InvalidSearchSpace(f"{key_name(path)}: a {kind.__name__} cannot be stored as it is")


def _encode_plain(value: Any, path: Path) -> Any:
    kind = type(value)
    if kind is bytes:
        return _marked("bytes", base64=_to_text(value))
    if kind is int and not -INT64 <= value < 2 * INT64:
        return _marked("int", hex=hex(value))  # in decimal, Python refuses a long one
    if kind in SETS:
        return _marked(kind.__name__, items=_each(in_order(value), path))
    return value


def _each(values: Iterable[Any], path: Path) -> list[Any]:
    return [_encode(item, (*path, i)) for i, item in enumerate(values)]


def _shown(value: Ref | Opaque, path: Path) -> dict[str, Any]:
    return {} if value.shown is None else {"shown": _encode(value.shown, path)}


def _marked(kind: str, **fields: Any) -> dict[str, Any]:
    return {_MARK: kind, **fields}


def _to_text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _decode_marked(fields: dict[str, Any]) -> Any:
    match fields:
        case {"__holdfast__": "tuple", "items": list(items)}:
            return tuple(map(from_plain, items))
        case {"__holdfast__": "ref", "path": list(path), "index": index, "summary": summary}:
            shown = from_plain(fields.get("shown"))
            return Ref(path=tuple(path), index=index, summary=summary, shown=shown)
        case {"__holdfast__": "opaque", "base64": str(text), "summary": summary}:
            shown = from_plain(fields.get("shown"))
            return Opaque(pickled=base64.b64decode(text), summary=summary, shown=shown)
        case {"__holdfast__": "dict", "items": dict(items)}:
            return {key: from_plain(item) for key, item in items.items()}
        case {"__holdfast__": "dict", "pairs": list(pairs)}:
            return {from_plain(key): from_plain(item) for key, item in pairs}
        case {"__holdfast__": "set", "items": list(items)}:
            return set(map(from_plain, items))
        case {"__holdfast__": "frozenset", "items": list(items)}:
            return frozenset(map(from_plain, items))
        case {"__holdfast__": "int", "hex": str(text)}:
            return int(text, 16)
        case {"__holdfast__": "bytes", "base64": str(text)}:
            return base64.b64decode(text)
        case _:
            raise InvalidSearchSpace(f"a stored configuration has an unknown mark: {fields!r}")


def _read_config(plain: Any) -> dict[str, Any]:
    # A marked value, such as a tuple, takes two levels of nesting in a record.
    config = from_plain(check_plain(plain, "it", 2 * DEEPEST + 2))
    if type(config) is not dict:
        raise ValueError(f"must be a table of names and values, not {shown(config)}")
    return config


# A trial's configuration, or data that contains parts of one.
Config = Annotated[Mapping[str, Any], Stored(_read_config, to_plain)]


# A larger value that is not plain is data: only its kind and size are shown.
MOST: Final = 1_000


def readable(value: Any) -> Any:
    """`value` as JSON can hold it: sets as sorted lists, keys and bytes as text.

    A value that only the user's code can read is shown as its summary.
    """
    kind = type(value)
    if kind is float or kind is bool or value is None:
        return value
    if kind is str:
        return value if value.isascii() else value.encode(errors="replace").decode()
    if kind is int:
        return value if value.bit_length() <= READ_BITS else whole_text(value)
    if kind is Ref or kind is Opaque:
        return value.summary if value.shown is None else value.shown
    if isinstance(value, Mapping):
        return _with_text_keys(value)
    if isinstance(value, (list, tuple)):
        return list(map(readable, value))
    if isinstance(value, (set, frozenset)):
        return in_order(map(readable, value))
    return _readable_object(value)


def finite(value: Any) -> Any:
    """Plain values with None for NaN and the infinities, which other JSON readers refuse."""
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, (list, tuple)) else value


def excerpt(value: Any) -> Any:
    """The `shown` of a value that is not plain; None if its summary says the same.

    A container of more than 1,000 values, and a larger array, is shown by its size.
    """
    try:
        shown = _sized(value) if _count(value, MOST) > MOST else readable(value)
    except Exception:  # the user's class raised, or it contains itself: show its summary
        return None
    return None if shown == summarize(value) else shown


def key_text(key: object) -> str:
    """The key of a dict as text: `1`, `0.5`, `None`, `(1, 'a')`."""
    return str(key if isinstance(key, (tuple, frozenset)) else readable(key))


def _with_text_keys(values: Mapping[Any, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for key, value in values.items():
        text = key if type(key) is str and key.isascii() else key_text(key)
        if text in shown:  # both 1 and "1" are keys
            text = f"{text} ({type(key).__name__})"
        shown[text] = readable(value)
    return shown


def _count(value: Any, most: int) -> int:
    """The number of values that would be shown; stops counting above `most`."""
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, (list, tuple, set, frozenset)):
        return value.size if _is_small_array(value) else 1
    count = 0
    for item in value:
        count += _count(item, most - count)
        if count > most:
            break
    return count


def _sized(value: Any) -> str:
    return f"{type(value).__name__} of {len(value):,}"


def _readable_object(value: Any) -> Any:
    value = unwrap_scalar(value)
    if isinstance(value, Enum):
        return readable(value.value) if is_plain(value.value) else value.name
    if isinstance(value, str):
        return readable(str.__str__(value))
    if isinstance(value, int):
        return readable(int(value))
    if isinstance(value, (float, Decimal)):
        return float(value)
    if isinstance(value, (bytes, bytearray)):
        return value.decode(errors="backslashreplace")
    if isinstance(value, complex):
        return str(value)
    if _is_small_array(value):
        return _readable_numbers(value)
    if hasattr(type(value), "shape") and hasattr(type(value), "dtype"):
        return f"{type(value).__name__} of shape {tuple(value.shape)}, {value.dtype}"
    return summarize(value) if isinstance(value, type) else _readable_by_method(value)


def _is_small_array(value: Any) -> bool:
    """Whether it is a small NumPy array: other libraries may hold their numbers outside main
    memory."""
    package = type(value).__module__.partition(".")[0]
    return package == "numpy" and hasattr(type(value), "tolist") and value.size <= MOST


def _readable_numbers(array: Any) -> Any:
    if array.dtype.kind in "Mm":  # dates and times: their raw numbers mean nothing to people
        return array.astype(str).tolist() if array.shape else str(array)
    return readable(array.tolist())


def _readable_by_method(value: Any) -> Any:
    """Dates and paths as text, durations in seconds, anything else as its summary."""
    for method in ("isoformat", "total_seconds", "__fspath__"):
        if callable(getattr(type(value), method, None)):
            return readable(getattr(value, method)())
    return summarize(value)


_CONTAINERS = (Mapping, list, tuple, set, frozenset)


def check_nesting(value: Any, what: str) -> None:
    """Raise InvalidSearchSpace if a config or a search space cannot be serialized."""
    if fault := nesting_fault(value):
        raise InvalidSearchSpace(f"{what}: {fault}")


def nesting_fault(value: Any) -> str:
    """What is wrong with the nesting of `value`, with the key; "" if nothing is.

    Looks into dicts, lists, tuples, sets and the values of domains and grids.
    """
    return _fault(value, (None,), ())


def _fault(value: Any, path: tuple[Any, ...], above: tuple[int, ...]) -> str:
    parts = _parts(value)
    if parts is None:
        return ""
    if id(value) in above:
        return f"{_named(path)}: this {type(value).__name__} contains itself"
    if len(above) == DEEPEST:
        return f"{_named(path[:4])}: nested more than {DEEPEST} levels deep"
    above = (*above, id(value))
    faults = (_fault(inner, (*path, key), above) for key, inner in parts)
    return next(filter(None, faults), "")


def _named(path: Iterable[Any]) -> str:
    keys: Path = tuple(key for key in path if key is not None)
    return key_name(keys) or "it"


def _parts(value: Any) -> Iterable[tuple[Any, Any]] | None:
    """The contents of a container as (key, value) pairs; None for other values."""
    choices: Sequence[Any] | None = value.categories if isinstance(value, Categorical) else None
    if choices is None and isinstance(value, Mapping):
        choices = grid_values(value)
        if choices is None:
            return value.items()
    if choices is not None:
        return ((None, choice) for choice in choices)
    return enumerate(value) if isinstance(value, _CONTAINERS) else None
