"""What a configuration holds: plain values, and what stands in it for those that are not plain.

A journalled configuration is plain throughout. A value of the user's that is no number, text or
container of them is named (`Ref`: it stands in `param_space`, which a restore may give anew) or
carried (`Opaque`: pickled by the shell, never opened here).
"""

from __future__ import annotations

import base64
import re
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from holdfast.trial.domains import Categorical, Domain
from holdfast.trial.errors import InvalidSearchSpace
from holdfast.trial.space import grid_values

Path = tuple[str | int, ...]

_SCALARS: Final = frozenset({type(None), bool, float, bytes})
_INT64: Final = 1 << 63
_MARK: Final = "__holdfast__"
_UNSAFE: Final = re.compile(r"[^a-zA-Z0-9_.-]+")
_TAG_CHARS: Final = 100
_KEY_CHARS: Final = 30
_VALUE_CHARS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Opaque:
    """A user's value as bytes that only the shell unpickles; `summary` is for people."""

    pickled: bytes
    summary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ref:
    """The user's value that stands in the search space at `path`; `summary` is for people.

    Where `path` leads to a grid or a choice, `index` is the number of the value among its values.
    On the way, a number inside `path` picks from a list, a grid or a choice alike.
    """

    path: Path
    index: int | None
    summary: str


def is_plain(value: object) -> bool:
    """Whether JSON (bytes aside) and msgpack hold `value` and give it back the same.

    True for None, bool, int of 64 bits, float, UTF-8 text, bytes, and lists, tuples and dicts
    with text keys of these; false for their subclasses, which would come back as their base.
    """
    try:
        return _is_plain(value)
    except RecursionError:  # contains itself
        return False


def unwrap_scalar(value: Any) -> Any:
    """A NumPy scalar as the Python number, truth value or text it stands for; others unchanged."""
    kind = type(value)
    if kind.__module__ != "numpy" or kind.__name__ == "ndarray" or not hasattr(value, "item"):
        return value
    item = value.item()
    return item if is_plain(item) else value


def summarize(value: object, index: int | None = None) -> str:
    """A short name for a value that is not plain: never its repr, which may hold an address."""
    if isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)):
        return value.__name__
    name = type(value).__name__
    return name if index is None else f"{name}[{index}]"


def key_name(path: Path) -> str:
    """`net/width`: how a place in a configuration is called in errors and columns."""
    return "/".join(map(str, path)) or "param_space"


def replace_leaves(config: Any, convert: Callable[[Path, Any], Any], path: Path = ()) -> Any:
    """A copy of `config` with `convert(path, value)` for each value that is no plain container."""
    kind = type(config)
    if _has_text_keys(config):
        return {key: replace_leaves(value, convert, (*path, key)) for key, value in config.items()}
    if kind is list or kind is tuple:
        values = (replace_leaves(v, convert, (*path, i)) for i, v in enumerate(config))
        return list(values) if kind is list else tuple(values)
    return convert(path, config)


def seal(config: dict[str, Any], pickle: Callable[[Path, Any], Opaque]) -> dict[str, Any]:
    """`config` with an `Opaque` from `pickle` for every value that is not plain and not a Ref."""

    def convert(path: Path, value: Any) -> Any:
        value = unwrap_scalar(value)
        known = isinstance(value, (Ref, Opaque)) or is_plain(value)
        return value if known else pickle(path, value)

    sealed: dict[str, Any] = replace_leaves(config, convert)
    return sealed


def to_plain(value: Any) -> Any:
    """`value` as JSON and msgpack hold it, Refs, Opaques, tuples and bytes marked.

    Raises InvalidSearchSpace for a value that is none of these and not plain.
    """
    return _encode(value, ())


def from_plain(value: Any) -> Any:
    """What `to_plain` was given. Raises InvalidSearchSpace for a mark that it never writes."""
    if isinstance(value, list):
        return [from_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    if _MARK not in value:
        return {key: from_plain(item) for key, item in value.items()}
    return _decode_marked(value)


def fold_values(config: Any, param_space: Mapping[str, Any]) -> Any:
    """`config` with the value itself in place of each Ref; containers are new, Opaques stay.

    Raises InvalidSearchSpace, naming the key, where `param_space` has no such value.
    """
    return replace_leaves(
        config, lambda path, leaf: _find(path, leaf, param_space) if type(leaf) is Ref else leaf
    )


def flatten(config: Mapping[str, Any]) -> dict[str, Any]:
    """The leaves of `config` under names as `net/width` and `layers/0`; empty containers stay."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        _flatten_into(flat, str(key), value)
    return flat


def format_tag(index: int, evaluated: Mapping[str, Any]) -> str:
    """`0_kind=a,lr=0.6176`: a trial's number and varied parameters, safe in a file name.

    Keys are sorted, floats have 4 significant digits, other values are cut at 20 characters.
    Parameters that would make it longer than 100 characters are left out.
    """
    tag = f"{index}"
    for key in sorted(evaluated):
        name = _clean(key)[-_KEY_CHARS:].lstrip("_")
        pair = f"{name}={_clean(_tag_text(evaluated[key]))[:_VALUE_CHARS]}"
        joined = f"{tag},{pair}" if "=" in tag else f"{tag}_{pair}"
        if len(joined) > _TAG_CHARS:
            break
        tag = joined
    return tag


class Unresolved(Exception):
    """A `sample_from` function read a value that is not drawn yet: it is called again later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Holds the place of a value that a `sample_from` function has not given yet."""

    name: str


class Settings(Mapping[str, Any]):
    """A configuration as `sample_from` functions read it: `settings.lr` and `settings["lr"]`.

    Reading a value that is not drawn yet notes its name in `missed` and raises Unresolved.
    """

    __slots__ = ("_missed", "_values")

    def __init__(self, values: Mapping[str, Any], missed: list[str]) -> None:
        self._values = values
        self._missed = missed

    def __getitem__(self, key: str) -> Any:
        return self._open(self._values[key])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # copy and pickle ask before there is anything to look in
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError:
            known = ", ".join(map(repr, self._values))
            raise AttributeError(f"there is no {name!r} here, only {known}", name=name) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._values!r})"

    def _open(self, value: Any) -> Any:
        if type(value) is Waiting:
            self._missed.append(value.name)
            raise Unresolved(value.name)
        if type(value) is dict:
            return Settings(value, self._missed)
        if type(value) is list or type(value) is tuple:
            return type(value)(map(self._open, value))
        return value


class Spec(Settings):
    """The whole configuration, also under `config`: `spec.config.lr`, `spec["config"]["lr"]`."""

    __slots__ = ()

    @property
    def config(self) -> Settings:
        return Settings(self._values, self._missed)

    def __getitem__(self, key: str) -> Any:
        return (
            self.config
            if key == "config" and key not in self._values
            else super().__getitem__(key)
        )


def detach(value: Any) -> Any:
    """What a `sample_from` function returned, in containers of its own, Settings as dicts."""
    if isinstance(value, Settings) or type(value) is dict:
        return {key: detach(item) for key, item in value.items()}
    if type(value) is list or type(value) is tuple:
        return type(value)(map(detach, value))
    return unwrap_scalar(value)


def _is_plain(value: Any) -> bool:
    kind = type(value)
    if kind in _SCALARS:
        return True
    if kind is int:
        return bool(-_INT64 <= value < 2 * _INT64)
    if kind is str:
        return value.isascii() or _is_utf8(value)
    if kind is list or kind is tuple:
        return all(map(_is_plain, value))
    return _has_text_keys(value) and all(map(_is_plain, value.values()))


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, as undecodable file names have
        return False
    return True


def _has_text_keys(value: Any) -> bool:
    return type(value) is dict and all(type(key) is str and _is_plain(key) for key in value)


def _encode(value: Any, path: Path) -> Any:
    kind = type(value)
    if kind is list:
        return [_encode(item, (*path, i)) for i, item in enumerate(value)]
    if kind is tuple:
        return _marked("tuple", items=[_encode(item, (*path, i)) for i, item in enumerate(value)])
    if _has_text_keys(value):
        encoded = {key: _encode(item, (*path, key)) for key, item in value.items()}
        return _marked("dict", items=encoded) if _MARK in value else encoded
    if kind is bytes:
        return _marked("bytes", base64=_to_text(value))
    if kind is Ref:
        return _marked("ref", path=list(value.path), index=value.index, summary=value.summary)
    if kind is Opaque:
        return _marked("opaque", base64=_to_text(value.pickled), summary=value.summary)
    if is_plain(value):
        return value
    raise InvalidSearchSpace(f"{key_name(path)}: a {kind.__name__} cannot be stored as it is")


def _marked(kind: str, **fields: Any) -> dict[str, Any]:
    return {_MARK: kind, **fields}


def _to_text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _decode_marked(fields: dict[str, Any]) -> Any:
    match fields:
        case {"__holdfast__": "tuple", "items": list(items)}:
            return tuple(map(from_plain, items))
        case {"__holdfast__": "dict", "items": dict(items)}:
            return {key: from_plain(item) for key, item in items.items()}
        case {"__holdfast__": "bytes", "base64": str(text)}:
            return base64.b64decode(text)
        case {"__holdfast__": "ref", "path": list(path), "index": index, "summary": summary}:
            return Ref(path=tuple(path), index=index, summary=summary)
        case {"__holdfast__": "opaque", "base64": str(text), "summary": summary}:
            return Opaque(pickled=base64.b64decode(text), summary=summary)
        case _:
            raise InvalidSearchSpace(f"a stored configuration has an unknown mark: {fields!r}")


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
            "have; give restore() the param_space that the experiment was started with"
        ) from error
    return value


def _inside(value: Any) -> Any:
    if isinstance(value, Categorical):
        return value.categories
    if isinstance(value, (dict, list, tuple)):
        return grid_values(value) or value
    raise TypeError(f"nothing stands inside a {type(value).__name__}")


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
        return f"{value:.4g}".replace("e+", "e")  # a + in a key of S3 is read as a space by some
    if isinstance(value, (Ref, Opaque)):
        return value.summary
    if isinstance(value, (list, tuple)):
        return "_".join(map(_tag_text, value))
    if isinstance(value, dict):
        return "_".join(f"{key}_{_tag_text(item)}" for key, item in value.items())
    return str(value) if is_plain(value) else summarize(value)


def _clean(text: str) -> str:
    return _UNSAFE.sub("_", text).strip("_")
