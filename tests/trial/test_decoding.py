"""Plain data becomes a dataclass only if each field has the right type, range and name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.dataclass import dataclass
from holdfast.schema import (
    DEEPEST,
    Count,
    FolderName,
    Limit,
    Moment,
    UnreadableRecord,
    check_plain,
    decode,
)


class Colour(StrEnum):
    RED = "RED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    size: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    name: str
    folder: FolderName = "a"
    at: Moment = 0.0
    limit: Limit | None = None
    number: int = 0
    share: float = 0.0
    is_on: bool = False
    inner: Inner | None = None
    several: Sequence[Inner] = ()
    amounts: Mapping[str, float] | None = None
    metrics: Mapping[str, Any] | None = None
    colour: Colour = Colour.RED
    level: bool | str = False


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def test_what_fits_is_taken_and_what_is_not_there_has_its_default() -> None:
    plain = {"name": "x", "inner": {"size": 3}, "several": [{"size": 1}], "amounts": {"CPU": 2}}
    assert decode(Outer, plain) == Outer(
        name="x", inner=Inner(size=3), several=(Inner(size=1),), amounts={"CPU": 2}
    )
    assert decode(Outer, {"name": "x", "is_on": 1, "level": "raise", "limit": math.inf}) == Outer(
        name="x", is_on=True, level="raise", limit=math.inf
    )


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("name", 5, "name must be text, not 5"),
        ("name", b"x", "name must be text, not b'x'"),
        ("folder", "../../victim", r"folder '../../victim' must be one plain name"),
        ("at", math.nan, "at must be a number from 0 to .*, not nan"),
        ("at", 1e300, "at must be a number from 0"),
        ("number", 1 << 80, "number must be a whole number of at most 64 bits"),
        ("number", 1 << 4000, "not an integer of 4,001 bits"),
        ("number", True, "number must be a whole number"),
        ("number", 1.0, "number must be a whole number"),
        ("share", math.inf, "share must be a finite number, not inf"),
        ("share", 10**400, "share must be a finite number"),
        ("limit", math.nan, "limit must be a number, not nan"),
        ("is_on", "yes", "is_on must be true or false"),
        ("inner", {"size": -1}, "Inner: size must be a whole number from 0"),
        ("inner", {"size": 1, "hue": 1}, "Inner has fields .* does not know: 'hue'"),
        ("inner", [1], "Inner must be a table of fields, not a list of 1"),
        ("inner", {}, "Inner: size is missing"),
        ("several", 5, "several must be a list, not 5"),
        ("amounts", {"CPU": "many"}, "amounts must be a finite number, not 'many'"),
        ("metrics", {1: 2}, "metrics has the key 1, which is not text"),
        ("metrics", {"x": {(1,): 2}}, "metrics has the key a tuple of 1"),
        ("metrics", {"x": object()}, "metrics has a object"),
        ("colour", "BLUE", "colour must be one of RED, not 'BLUE'"),
        ("colour", "\x1b[2J" * 1000, r"not '\\x1b\[2J"),
        ("level", 5, "level must be"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_line_that_names_the_field(
    field: str, value: Any, told: str
) -> None:
    is_refused(field, value, told)


@pytest.mark.parametrize("levels", [DEEPEST + 1, 200_000])
def test_what_is_nested_too_deeply_is_refused_in_such_a_line(levels: int) -> None:
    is_refused("metrics", {"x": nested(levels)}, "metrics is nested deeper than holdfast writes")


def is_refused(field: str, value: Any, told: str) -> None:
    with pytest.raises(UnreadableRecord, match=told) as raised:
        decode(Outer, {"name": "x", field: value})
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 600


def test_no_table_and_too_many_names_are_refused() -> None:
    with pytest.raises(UnreadableRecord, match="must be a table of fields, not a list of 3"):
        decode(Outer, [1, 2, 3])
    with pytest.raises(UnreadableRecord, match="and 88 more"):
        decode(Outer, {"name": "x", **{f"f{n}": 1 for n in range(100)}})


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(
    plain=st.dictionaries(
        st.sampled_from([*Outer.__dataclass_fields__, "hue"]), ANYTHING, max_size=5
    )
)
def test_whatever_comes_it_is_an_outer_or_one_line(plain: dict[str, Any]) -> None:
    refusal = ""
    try:
        decode(Outer, plain)
    except UnreadableRecord as error:
        refusal = str(error)
    assert refusal.isprintable()


def test_nesting_up_to_the_limit_is_taken() -> None:
    assert check_plain(nested(DEEPEST), "it") == nested(DEEPEST)
