"""Plain data: the values that both JSON and MessagePack can represent."""

from __future__ import annotations

from typing import Any

from holdfast.names import shown
from holdfast.plain_numbers import is_count as is_count
from holdfast.plain_numbers import is_number as is_number
from holdfast.trial.nesting import DEEPEST

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
