"""The functions for nested dicts in `tune.utils`."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.tune.utils import deep_update, flatten_dict, merge_dicts, unflattened_lookup

NESTED: dict[str, Any] = {"a": {"b": 1, "c": {"d": [2, {"e": 3}]}}, "f": 4, "none": {}}


def test_a_nested_dict_becomes_one_of_one_level() -> None:
    assert flatten_dict(NESTED) == {"a/b": 1, "a/c/d": [2, {"e": 3}], "f": 4}
    flat = flatten_dict(NESTED, delimiter=".", flatten_list=True)
    assert flat == {"a.b": 1, "a.c.d.0": 2, "a.c.d.1.e": 3, "f": 4}
    with pytest.raises(ValueError, match="the key 'b/c' contains '/'"):
        flatten_dict({"a": {"b/c": 1}}, prevent_delimiter=True)


def test_a_flat_key_finds_its_value() -> None:
    assert unflattened_lookup("a/c/d/1/e", NESTED) == 3
    assert unflattened_lookup("a/b", {"a/b": 5}) == 5
    for absent in ("a/x", "f/g", "a/c/d/7", "a/c/d/x"):
        assert unflattened_lookup(absent, NESTED, default=None) is None
        with pytest.raises(KeyError, match=absent):
            unflattened_lookup(absent, NESTED)


def test_a_merged_dict_is_a_copy() -> None:
    first = {"a": {"b": 1, "c": [2]}}
    merged = merge_dicts(first, {"a": {"b": 3, "new": 4}, "x": 5})
    assert merged == {"a": {"b": 3, "c": [2], "new": 4}, "x": 5}
    merged["a"]["c"].append(6)
    assert first == {"a": {"b": 1, "c": [2]}}


def test_an_update_refuses_new_keys_unless_they_are_allowed() -> None:
    with pytest.raises(KeyError, match="'y' is new; known are \\['b'\\]"):
        deep_update({"a": {"b": 1}}, {"a": {"y": 1}})
    found = deep_update({"a": {"b": 1}}, {"a": {"y": 1}}, allow_new_subkey_list=["a"])
    assert found == {"a": {"b": 1, "y": 1}}


def test_an_update_replaces_some_dicts_as_a_whole() -> None:
    old = {"type": 1, "b": 1}
    new = {"type": 2, "c": 2}
    assert deep_update({"a": dict(old)}, {"a": new}, override_all_key_list=["a"]) == {"a": new}
    by_type = deep_update({"a": dict(old)}, {"a": new}, override_all_if_type_changes=["a"])
    assert by_type == {"a": new}
    same = deep_update({"a": dict(old)}, {"a": {"type": 1, "b": 3}}, False, None, ["a"])
    assert same == {"a": {"type": 1, "b": 3}}
