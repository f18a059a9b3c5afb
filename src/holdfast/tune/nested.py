"""Functions for nested dicts, such as configs and rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any


def flatten_dict(
    dt: Mapping[Any, Any],
    delimiter: str = "/",
    prevent_delimiter: bool = False,
    flatten_list: bool = False,
) -> dict[str, Any]:
    """A dict of one level: `{"a": {"b": 1}}` is `{"a/b": 1}`. With `flatten_list`, the values of a
    list, too, by their numbers.

    Raises ValueError for a key that contains the delimiter, with `prevent_delimiter`.
    """

    def leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
        inner: Any = value.items() if isinstance(value, Mapping) else None
        if flatten_list and isinstance(value, list):
            inner = enumerate(value)
        if inner is None:
            yield delimiter.join(path), value
            return
        for key, part in inner:
            if prevent_delimiter and delimiter in str(key):
                raise ValueError(f"flatten_dict(): the key {key!r} contains {delimiter!r}")
            yield from leaves(part, (*path, str(key)))

    return dict(leaves(dt, ()))


def unflattened_lookup(
    flat_key: str, lookup: Mapping[Any, Any] | Sequence[Any], delimiter: str = "/", **kwargs: Any
) -> Any:
    """The value that `flatten_dict` has under `flat_key`, from the nested dict. Raises KeyError if
    there is none, unless `default=` is given."""
    if isinstance(lookup, Mapping) and flat_key in lookup:
        return lookup[flat_key]
    found: Any = lookup
    try:
        for part in flat_key.split(delimiter):
            is_list = isinstance(found, Sequence) and not isinstance(found, (str, bytes))
            if not is_list and not isinstance(found, Mapping):
                raise KeyError(flat_key)
            found = found[int(part) if is_list else part]
    except (KeyError, IndexError, ValueError):
        if "default" in kwargs:
            return kwargs["default"]
        raise KeyError(flat_key) from None
    return found


def merge_dicts(d1: Mapping[Any, Any], d2: Mapping[Any, Any]) -> dict[Any, Any]:
    """A copy of `d1` with the values of `d2`, at every level."""
    return deep_update(deepcopy(dict(d1)), d2, new_keys_allowed=True)


def deep_update(
    original: dict[Any, Any],
    new_dict: Mapping[Any, Any],
    new_keys_allowed: bool = False,
    allow_new_subkey_list: Collection[Any] | None = None,
    override_all_if_type_changes: Collection[Any] | None = None,
    override_all_key_list: Collection[Any] | None = None,
) -> dict[Any, Any]:
    """Change `original` to the values of `new_dict`, at every level, and return it.

    A dict under a key of `override_all_key_list` is replaced as a whole; one under a key of
    `override_all_if_type_changes` is, if its "type" changes. New keys are those of
    `new_keys_allowed`, or below a key of `allow_new_subkey_list`.

    Raises KeyError for another new key.
    """
    whole = override_all_key_list or ()
    by_type = override_all_if_type_changes or ()
    for key, value in new_dict.items():
        if key not in original and not new_keys_allowed:
            raise KeyError(
                f"deep_update(): {key!r} is new; known are {sorted(map(str, original))}"
            )
        old = original.get(key)
        if (
            not (isinstance(old, dict) and isinstance(value, Mapping))
            or key in whole
            or (
                key in by_type
                and {"type"} <= old.keys() & value.keys()
                and old["type"] != value["type"]
            )
        ):
            original[key] = value
            continue
        allowed = new_keys_allowed or key in (allow_new_subkey_list or ())
        deep_update(old, value, allowed, override_all_key_list=whole)
    return original
